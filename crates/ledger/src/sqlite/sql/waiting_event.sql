SELECT w.sealed, w.expires_at, e.id, e.contact FROM waiting_event w JOIN event e ON e.seq = w.seq WHERE w.seq = ?1
