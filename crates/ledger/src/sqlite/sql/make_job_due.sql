-- Due times are by the steady clock, which the ledger does not know: 0 is due at once.
UPDATE job SET due_at = CASE WHEN state = 3 THEN 0 ELSE due_at END, updated_at = CASE WHEN state = 3 THEN ?2 ELSE updated_at END WHERE id = ?1 RETURNING worker
