SELECT min(due_at) FROM job WHERE state IN (2, 3) AND destination = ?1 AND worker = ?2 AND due_at > ?3
