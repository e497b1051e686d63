SELECT id, key, key, NULL FROM key_binding WHERE id > ?1 ORDER BY id
