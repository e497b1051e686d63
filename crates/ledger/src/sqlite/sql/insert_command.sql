INSERT INTO command (key, request, term, at, content_type) VALUES (?1, ?2, ?3, ?4, '')
