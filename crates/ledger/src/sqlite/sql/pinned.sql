SELECT revision, worker, queue, NULL, count(*), 0 FROM job WHERE state < 8 GROUP BY revision, worker, queue
UNION ALL
SELECT revision, worker, queue, dead_letter_queue, 0, count(*) FROM job WHERE state IN (10, 11)
 GROUP BY revision, worker, queue, dead_letter_queue
