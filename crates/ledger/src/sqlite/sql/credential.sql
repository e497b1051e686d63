SELECT id, kind, name, role, reveal, created_at, created_by, expires_at, used_at, issuer, subject FROM credential WHERE digest = ?1
