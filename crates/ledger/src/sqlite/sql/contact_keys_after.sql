SELECT id, wrapped FROM contact_key WHERE id > ?1 ORDER BY id LIMIT ?2
