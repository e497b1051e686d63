INSERT INTO contact (id, merged_into, contact_key, seq, conflicts, created_at, sealed) VALUES (?1, NULL, ?2, ?3, ?4, ?5, ?6)
