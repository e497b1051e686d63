SELECT id, request, term, status, content_type, body FROM command WHERE key = ?1 AND at > ?2
