DELETE FROM key_binding WHERE id IN (SELECT id FROM key_binding WHERE expires_at <= ?1 LIMIT ?2)
