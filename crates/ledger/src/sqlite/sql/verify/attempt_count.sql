SELECT 'job_' || j.id || ' counts ' || j.attempt_rows || ' attempts, and has ' || (SELECT count(*) FROM attempt a WHERE a.job = j.id)
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2 AND j.attempt_rows <> (SELECT count(*) FROM attempt a WHERE a.job = j.id)
 LIMIT 1
