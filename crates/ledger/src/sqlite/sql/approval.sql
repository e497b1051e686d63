SELECT n, id, job, worker, step_id, title, summary, asked_at, expires_at, preset, state, decided_at, decided_by, reason FROM approval WHERE id = ?1
