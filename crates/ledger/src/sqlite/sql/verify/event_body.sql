SELECT 'event ' || e.ord || ' has no body, and one of its jobs is alive'
  FROM event e
 WHERE e.ord > ?1 AND e.ord <= ?2
   AND NOT EXISTS (SELECT 1 FROM event_body b WHERE b.ord = e.ord)
   AND EXISTS (SELECT 1 FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND j.state < 8)
 LIMIT 1
