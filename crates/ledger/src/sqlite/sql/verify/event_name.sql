SELECT 'event ' || e.seq || ' expires before it was received, or has no name'
  FROM event e
 WHERE e.seq > ?1 AND e.seq <= ?2 AND (e.expires_at < e.received_at OR length(e.id) <> 16 OR length(e.key) <> 16 OR e.generation < 0)
 LIMIT 1
