SELECT id, selection, actor, reason, revision, reapply, rate_count, rate_ms, batch, state, created_at, updated_at, after_job, last_job, next_at, replayed, skipped FROM replay WHERE id = ?1
