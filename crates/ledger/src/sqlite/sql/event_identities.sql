SELECT i.seq, e.id, i.contact_id, i.contact_key, i.at, i.sealed FROM event_identity i JOIN event e ON e.seq = i.seq WHERE i.contact_id = ?1 ORDER BY i.seq DESC LIMIT ?2
