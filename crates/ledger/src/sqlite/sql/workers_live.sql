WITH RECURSIVE live (worker) AS (
  SELECT min(worker) FROM job WHERE state < 8
  UNION ALL
  SELECT (SELECT min(job.worker) FROM job WHERE job.state < 8 AND job.worker > live.worker) FROM live WHERE live.worker IS NOT NULL)
SELECT worker FROM live WHERE worker IS NOT NULL
