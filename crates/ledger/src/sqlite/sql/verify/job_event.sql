SELECT 'job_' || j.id || ' belongs to event ' || j.seq || ', which is not there'
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2 AND NOT EXISTS (SELECT 1 FROM event e WHERE e.seq = j.seq AND j.id >= e.first_job AND j.id < e.first_job + e.jobs)
 LIMIT 1
