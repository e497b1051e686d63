SELECT 'the effect `' || f.step_id || '` of job_' || f.job || CASE WHEN j.id IS NULL THEN ' has no job' ELSE ' is of try ' || f.n || ', and the job is at try ' || j.attempts_total END
  FROM effect f LEFT JOIN job j ON j.id = f.job
 WHERE f.job > ?1 AND f.job <= ?2 AND (j.id IS NULL OR f.n > j.attempts_total)
 LIMIT 1
