INSERT INTO deferred (id, destination, worker, entity, due_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (id) DO UPDATE SET destination = excluded.destination, due_at = excluded.due_at
