SELECT name, role, reveal, password, created_at, changed_at FROM user WHERE name = ?1
