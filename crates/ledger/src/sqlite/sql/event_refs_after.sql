SELECT seq, contact, contact_id, trace FROM event WHERE seq > ?1 ORDER BY seq
