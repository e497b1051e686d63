SELECT name, role, reveal, password, created_at, changed_at FROM user ORDER BY name LIMIT 1000
