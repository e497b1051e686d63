SELECT n, fingerprint FROM variant WHERE seq = ?1 ORDER BY n
