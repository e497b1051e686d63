SELECT v.n, v.received_at, v.fingerprint, v.times, v.further, v.event, v.sealed, e.id FROM variant v JOIN event e ON e.seq = v.seq WHERE v.seq = ?1 ORDER BY v.n
