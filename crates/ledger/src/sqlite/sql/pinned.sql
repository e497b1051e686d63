-- Counted by whoever asks: grouped here, a million live jobs would be sorted first, in memory.
SELECT revision, worker, queue, NULL FROM job WHERE state < 8
UNION ALL
SELECT revision, worker, queue, coalesce(dead_letter_queue, '') FROM job WHERE state IN (10, 11)
