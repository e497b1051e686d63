SELECT ord, flow, fingerprint, received_at FROM event ORDER BY ord DESC LIMIT ?1
