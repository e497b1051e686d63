SELECT i.seq, e.id, i.contact_id, i.contact_key, i.at, i.sealed FROM event_identity i JOIN event e ON e.seq = i.seq WHERE i.seq = ?1
