SELECT 'job_' || j.id || ' runs, and has never been begun'
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2 AND j.state = 1 AND j.attempts_total = 0
 LIMIT 1
