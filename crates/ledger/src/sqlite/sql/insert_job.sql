INSERT INTO job (id, ord, worker, queue, revision, entity, state, step, attempts, tries, due_at, verifying,
                 created_at, updated_at, replays)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0, 0, ?7, 0, ?7, ?7, 0)
