SELECT contact_id FROM event WHERE seq = ?1
