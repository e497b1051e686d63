UPDATE identity_lookup SET tries = ?2, due_at = ?3, last = ?4 WHERE seq = ?1 AND tries = ?5
