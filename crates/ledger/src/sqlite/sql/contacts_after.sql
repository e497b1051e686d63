SELECT id, digest, digest FROM contact_key WHERE id > ?1 ORDER BY id
