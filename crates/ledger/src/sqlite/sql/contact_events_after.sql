SELECT seq, contact, contact_id FROM event WHERE seq > ?1 AND (contact IS NOT NULL OR contact_id IS NOT NULL) ORDER BY seq
