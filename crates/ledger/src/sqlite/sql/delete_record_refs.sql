DELETE FROM record_ref WHERE id IN (SELECT id FROM record_ref ORDER BY id LIMIT ?2)
  AND job < (SELECT coalesce(min(id), ?1) FROM job)
