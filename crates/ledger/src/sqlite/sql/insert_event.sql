INSERT INTO event (seq, id, key, generation, key_text, flow, source, event_type, received_at, persisted_at, occurred_at,
                   expires_at, revision, verified_by, trace, fingerprint, first_job, jobs, variant_of, contact, signed_content, contact_id)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22)
