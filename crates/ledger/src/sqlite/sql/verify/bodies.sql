SELECT e.seq, e.id, e.body_pruned, b.sealed FROM event e LEFT JOIN event_body b ON b.seq = e.seq WHERE e.seq > ?1 AND e.seq <= ?2
