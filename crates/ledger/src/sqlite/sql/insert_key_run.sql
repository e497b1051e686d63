INSERT INTO key_run (run, level, entries, first_ord, last_ord) VALUES (?1, ?2, ?3, ?4, ?5)
