SELECT seq, id, generation, key_text, flow, source, event_type, received_at, persisted_at, occurred_at, expires_at, revision, verified_by, trace, first_job, jobs, variant_of FROM event
 WHERE (?1 IS NULL OR seq < ?1) AND (?2 IS NULL OR source = ?2) AND (?3 IS NULL OR event_type = ?3)
 ORDER BY seq DESC LIMIT ?4
