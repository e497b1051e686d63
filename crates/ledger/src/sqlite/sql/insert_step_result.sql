INSERT INTO effect (job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, n, result, first_at, last_at, term)
VALUES (?1, ?2, ?3, ?4, ?5, '', 'transactional', ?9, 1, 0, 0, ?6, ?7, ?8, ?8, ?10)
ON CONFLICT (job, key) DO NOTHING
