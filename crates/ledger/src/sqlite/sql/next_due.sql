SELECT min(due_at) FROM deferred WHERE destination = ?1 AND worker = ?2 AND due_at > ?3
