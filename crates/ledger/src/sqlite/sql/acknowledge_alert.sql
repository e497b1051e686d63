UPDATE alert SET acknowledged_by = ?3 WHERE kind = ?1 AND subject = ?2
