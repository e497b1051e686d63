INSERT INTO variant (seq, n, received_at, fingerprint, times, further, event, sealed)
VALUES (?1, ?2, ?3, ?4, 1, 0, ?5, ?6)
