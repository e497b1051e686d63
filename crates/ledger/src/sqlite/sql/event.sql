SELECT ord, id, generation, key_text, flow, source, event_type, received_at, persisted_at, occurred_at, expires_at, revision, verified_by, trace, first_job, jobs FROM event WHERE ord = ?1
