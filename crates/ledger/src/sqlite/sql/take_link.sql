DELETE FROM credential WHERE digest = ?1 AND kind = 'link' RETURNING id, kind, name, role, reveal, created_at, created_by, expires_at, used_at, issuer, subject
