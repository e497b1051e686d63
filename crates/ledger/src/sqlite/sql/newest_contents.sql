SELECT seq, flow, event_type, fingerprint, received_at FROM event ORDER BY seq DESC LIMIT ?1
