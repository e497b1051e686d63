DELETE FROM suppression WHERE contact = ?1 AND channel = ?2
