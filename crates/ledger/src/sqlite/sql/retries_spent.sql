SELECT count(*) FROM retry_spent WHERE worker = ?1 AND entity = ?2 AND until > ?3
