INSERT INTO straggler (worker, entity, step_id, job, key, due_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (worker, entity, step_id) DO UPDATE SET job = excluded.job, key = excluded.key, due_at = excluded.due_at
