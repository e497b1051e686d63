SELECT n, fingerprint FROM variant WHERE ord = ?1 ORDER BY n
