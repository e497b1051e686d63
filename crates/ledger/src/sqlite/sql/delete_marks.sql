DELETE FROM mark WHERE (store, key) IN (SELECT store, key FROM mark WHERE expires_at <= ?1 LIMIT ?2)
