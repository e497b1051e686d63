SELECT 'try ' || a.n || ' of job_' || a.job || CASE WHEN j.id IS NULL THEN ' has no job' ELSE ' was recorded, and the job is at try ' || j.attempts_total END
  FROM attempt a LEFT JOIN job j ON j.id = a.job
 WHERE a.job > ?1 AND a.job <= ?2 AND (j.id IS NULL OR a.n > j.attempts_total)
 LIMIT 1
