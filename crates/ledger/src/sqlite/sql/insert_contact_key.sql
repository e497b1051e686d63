INSERT INTO contact_key (id, digest, wrapped, created_at) VALUES (?1, ?2, ?3, ?4)
