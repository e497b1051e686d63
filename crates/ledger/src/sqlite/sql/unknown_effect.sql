-- The effect that a parked job waits for: the one of unknown outcome that was begun last.
SELECT key, step_id FROM effect WHERE job = ?1 AND state = 'unknown' ORDER BY n DESC LIMIT 1
