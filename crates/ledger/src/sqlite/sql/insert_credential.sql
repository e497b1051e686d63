INSERT INTO credential (digest, kind, name, role, reveal, created_at, created_by, expires_at, used_at, issuer, subject)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?6, ?9, ?10)
RETURNING id, kind, name, role, reveal, created_at, created_by, expires_at, used_at, issuer, subject
