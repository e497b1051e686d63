SELECT id, kind, name, role, reveal, created_at, created_by, expires_at, used_at, issuer, subject FROM credential WHERE kind = ?1 ORDER BY id DESC LIMIT 1000
