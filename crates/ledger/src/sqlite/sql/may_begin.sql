SELECT NOT EXISTS (SELECT 1 FROM effect WHERE effect.job = ?1 AND effect.key = ?3 AND effect.state IN ('applied', 'skipped')) FROM job WHERE id = ?1 AND state < 8 AND tries = ?2 - 1
