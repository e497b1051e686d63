SELECT id, digest, digest, NULL FROM identifier WHERE id > ?1 ORDER BY id
