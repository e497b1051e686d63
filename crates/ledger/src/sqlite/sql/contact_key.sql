SELECT digest, wrapped FROM contact_key WHERE id = ?1
