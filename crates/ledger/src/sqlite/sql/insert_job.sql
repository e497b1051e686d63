INSERT INTO job (id, seq, worker, queue, revision, entity, state, step, attempts, attempts_total, due_at, verifying,
                 created_at, updated_at, finished_at, replays, failure, message, dead_letter_queue, contact, destination, lane_order,
                 effect_rows, attempt_rows, room)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?8, 0, 0, 0, ?7, 0, ?7, ?7, ?9, 0, ?10, ?11, ?12, ?13, ?14, ?15, 0, 0, zeroblob(160))
