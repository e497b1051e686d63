SELECT 'job_' || j.id || ' is a dead letter without a reason'
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2 AND j.state IN (10, 11)
   AND (j.failure IS NULL OR coalesce(j.failure ->> '$.class', '') = '' OR coalesce(j.failure ->> '$.code', '') = '')
 LIMIT 1
