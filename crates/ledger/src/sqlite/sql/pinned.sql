SELECT revision, worker, queue, CASE WHEN state < 8 THEN '' ELSE dead_letter_queue END AS dead_letter_queue,
       sum(CASE WHEN state < 8 THEN count ELSE 0 END), sum(CASE WHEN state IN (10, 11) THEN count ELSE 0 END)
  FROM job_total WHERE state < 8 OR state IN (10, 11)
 GROUP BY 1, 2, 3, 4, state < 8 HAVING sum(count) > 0 ORDER BY 1, 2, 3, 4
