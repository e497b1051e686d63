SELECT job, key, step, step_id, action, destination, class, state, attempts, absent_reads, reads, n, result, first_at, last_at, term, mac FROM effect WHERE job = ?1
