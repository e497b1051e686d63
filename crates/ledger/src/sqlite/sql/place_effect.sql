UPDATE effect SET step = ?3, n = ?4 WHERE job = ?1 AND key = ?2
