INSERT INTO user (name, role, reveal, password, created_at, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5)
ON CONFLICT (name) DO UPDATE SET role = ?2, reveal = ?3, password = coalesce(?4, password), changed_at = ?5
