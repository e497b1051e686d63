DELETE FROM credential WHERE expires_at <= ?1
