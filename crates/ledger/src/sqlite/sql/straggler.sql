SELECT job, key, due_at FROM straggler WHERE worker = ?1 AND entity = ?2 AND step_id = ?3
