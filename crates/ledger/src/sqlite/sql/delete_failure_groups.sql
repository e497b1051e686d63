DELETE FROM failure_group WHERE id IN (SELECT id FROM failure_group WHERE count = 0 AND last_at < ?1 ORDER BY last_at LIMIT ?2)
