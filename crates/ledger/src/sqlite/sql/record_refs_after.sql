SELECT id, digest, digest, NULL FROM record_ref WHERE id > ?1 ORDER BY id
