UPDATE contact SET seq = ?2, conflicts = ?3, sealed = ?4 WHERE id = ?1
