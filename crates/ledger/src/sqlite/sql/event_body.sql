SELECT b.sealed, b.seq, e.id, i.sealed, i.contact_key FROM event_body b JOIN event e ON e.seq = b.seq LEFT JOIN event_identity i ON i.seq = b.seq WHERE b.seq = ?1
