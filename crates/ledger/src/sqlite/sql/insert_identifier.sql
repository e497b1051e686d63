INSERT INTO identifier (id, contact, digest) VALUES (?1, ?2, ?3)
