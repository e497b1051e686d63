UPDATE event SET contact_id = ?2 WHERE seq = ?1
