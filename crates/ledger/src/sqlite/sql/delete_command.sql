DELETE FROM command WHERE key = ?1
