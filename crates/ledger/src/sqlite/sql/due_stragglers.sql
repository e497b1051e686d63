SELECT worker, entity, step_id, job, key FROM straggler WHERE due_at <= ?1 ORDER BY due_at LIMIT ?2
