SELECT contact, contact_id, trace FROM event WHERE seq = ?1
