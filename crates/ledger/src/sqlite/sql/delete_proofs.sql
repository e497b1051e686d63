DELETE FROM proof WHERE digest IN (SELECT digest FROM proof WHERE expires_at <= ?1 LIMIT ?2)
