DELETE FROM credential WHERE id = ?1 AND kind = ?2 RETURNING id, kind, name, role, reveal, created_at, created_by, expires_at, used_at, issuer, subject
