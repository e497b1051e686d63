SELECT 'job_' || j.id || ' is in state ' || j.state || ', and ' || CASE WHEN j.finished_at IS NULL THEN 'has no end' ELSE 'has an end' END
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2
   AND (j.state NOT IN (0, 1, 2, 3, 8, 9, 10, 11, 12) OR (j.state < 8) <> (j.finished_at IS NULL) OR j.attempts < 0 OR j.attempts_total < 0)
 LIMIT 1
