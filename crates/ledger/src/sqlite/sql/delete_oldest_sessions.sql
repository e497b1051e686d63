DELETE FROM credential WHERE id IN (SELECT id FROM credential WHERE kind = 'session' AND name = ?1 ORDER BY id DESC LIMIT -1 OFFSET ?2)
