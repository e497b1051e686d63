SELECT job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, result, first_at, last_at FROM effect WHERE job = ?1 ORDER BY step, n DESC
