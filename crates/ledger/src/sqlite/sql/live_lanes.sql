SELECT worker, destination FROM job_total WHERE state < 8 GROUP BY 1, 2 HAVING sum(count) > 0 ORDER BY 1, 2
