INSERT INTO effect (job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, n, result, first_at, last_at, term)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'skipped', 0, 0, 0, ?9, ?10, ?8, ?8, ?11)
ON CONFLICT (job, key) DO UPDATE SET state = 'skipped', step = excluded.step, result = excluded.result, last_at = excluded.last_at, term = excluded.term
 WHERE state NOT IN ('applied', 'skipped')
