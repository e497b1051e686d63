SELECT n, received_at, fingerprint, times, further, event, sealed FROM variant WHERE ord = ?1 ORDER BY n
