INSERT INTO key_run (run, level, entries, first_seq, last_seq) VALUES (?1, ?2, ?3, ?4, ?5)
