INSERT INTO replay (selection, actor, reason, revision, reapply, rate_count, rate_ms, batch, state, created_at, updated_at, after_job, last_job, next_at, replayed, skipped)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'running', ?9, ?9, 0, ?10, ?9, 0, 0)
RETURNING id, selection, actor, reason, revision, reapply, rate_count, rate_ms, batch, state, created_at, updated_at, after_job, last_job, next_at, replayed, skipped
