DELETE FROM credential WHERE kind = ?1 AND name = ?2
