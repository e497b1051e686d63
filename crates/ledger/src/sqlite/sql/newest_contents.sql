SELECT seq, flow, fingerprint, received_at FROM event ORDER BY seq DESC LIMIT ?1
