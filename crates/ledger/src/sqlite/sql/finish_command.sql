UPDATE command SET status = ?2, content_type = ?3, body = ?4 WHERE id = ?1
