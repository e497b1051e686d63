INSERT INTO approval (id, job, worker, step_id, title, summary, asked_at, expires_at, preset, state)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'pending') ON CONFLICT (id) DO NOTHING
