SELECT 'event ' || e.seq || ' has no body, and one of its jobs is alive'
  FROM event e
 WHERE e.seq > ?1 AND e.seq <= ?2
   AND NOT EXISTS (SELECT 1 FROM event_body b WHERE b.seq = e.seq)
   AND EXISTS (SELECT 1 FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND j.state < 8)
 LIMIT 1
