INSERT INTO key_index (run, kind, chunk, bytes) VALUES (?1, ?2, ?3, ?4)
