SELECT b.sealed, b.seq, e.id FROM event_body b JOIN event e ON e.seq = b.seq WHERE b.seq = ?1
