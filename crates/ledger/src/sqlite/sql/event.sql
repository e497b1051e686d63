SELECT seq, id, generation, key_text, flow, source, event_type, received_at, persisted_at, occurred_at, expires_at, revision, verified_by, trace, first_job, jobs, variant_of FROM event WHERE seq = ?1
