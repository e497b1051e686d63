INSERT INTO identity_lookup (seq, tries, due_at) VALUES (?1, 0, ?2)
