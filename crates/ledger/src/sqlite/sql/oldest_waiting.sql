SELECT j.created_at FROM deferred q CROSS JOIN job j ON j.id = q.id WHERE q.worker = ?1 ORDER BY q.id LIMIT 1
