SELECT worker, entity, step_id, job, key FROM straggler WHERE due_at <= ?1 ORDER BY due_at, worker, entity, step_id LIMIT ?2
