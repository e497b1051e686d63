SELECT EXISTS (SELECT 1 FROM suppression WHERE contact = ?1 AND channel IN ('', ?2))
