INSERT INTO key_run (run, level, entries, last_ord, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)
