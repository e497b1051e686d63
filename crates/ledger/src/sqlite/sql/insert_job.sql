INSERT INTO job (id, seq, worker, queue, revision, entity, state, step, attempts, attempts_total, due_at, verifying,
                 created_at, updated_at, replays, contact, destination, lane_order, effect_rows, attempt_rows, room, imported)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0, 0, ?7, 0, ?7, ?7, 0, ?8, ?9, ?10, 0, 0, zeroblob(160), ?11)
