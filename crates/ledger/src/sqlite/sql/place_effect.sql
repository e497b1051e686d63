UPDATE effect SET step = ?3 WHERE job = ?1 AND key = ?2
