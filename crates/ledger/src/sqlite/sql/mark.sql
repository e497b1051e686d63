SELECT owner, event FROM mark WHERE store = ?1 AND key = ?2 AND expires_at > ?3
