SELECT n, received_at, fingerprint, times, further, event, sealed FROM variant WHERE seq = ?1 ORDER BY n
