UPDATE deferred SET due_at = 0 WHERE id = ?1
