-- The effect that a parked job waits for: the one of unknown outcome that was begun last.
SELECT job, key, step, step_id, action, destination, class, state, attempts, absent_reads, reads, n, result, first_at, last_at, term, mac FROM effect WHERE job = ?1 AND state = 'unknown' ORDER BY n DESC LIMIT 1
