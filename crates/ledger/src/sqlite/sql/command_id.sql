SELECT id FROM command WHERE key = ?1
