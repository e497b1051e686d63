SELECT worker, destination, state, dead_letter_queue, wait, sum(count) FROM job_total GROUP BY 1, 2, 3, 4, 5 HAVING sum(count) <> 0 ORDER BY 1, 2, 3, 4, 5
