SELECT 'event ' || e.seq || ' says that it has ' || e.jobs || ' jobs, and has ' || (SELECT count(*) FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND j.seq = e.seq)
  FROM event e
 WHERE e.seq > ?1 AND e.seq <= ?2
   AND e.jobs <> (SELECT count(*) FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND j.seq = e.seq)
 LIMIT 1
