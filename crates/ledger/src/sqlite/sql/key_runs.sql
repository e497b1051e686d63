SELECT run, level, entries, last_ord, expires_at FROM key_run ORDER BY run
