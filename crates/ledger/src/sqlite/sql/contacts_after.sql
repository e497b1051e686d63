SELECT id, digest, digest, NULL FROM contact_key WHERE id > ?1 ORDER BY id
