INSERT INTO record_ref (id, job, digest) VALUES (?1, ?2, ?3)
