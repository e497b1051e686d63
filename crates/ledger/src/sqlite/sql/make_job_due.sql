UPDATE job SET due_at = CASE WHEN state = 3 THEN ?2 ELSE due_at END, updated_at = CASE WHEN state = 3 THEN ?2 ELSE updated_at END WHERE id = ?1 RETURNING worker
