UPDATE credential SET used_at = ?2 WHERE id = ?1 AND used_at < ?2
