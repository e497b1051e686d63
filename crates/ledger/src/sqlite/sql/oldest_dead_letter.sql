SELECT min(finished_at) FROM (SELECT finished_at FROM job WHERE state IN (10, 11) AND dead_letter_queue IS ?1 ORDER BY id LIMIT ?2)
