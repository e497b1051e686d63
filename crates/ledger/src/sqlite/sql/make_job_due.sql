-- Due times are by the steady clock, which the ledger does not know: 0 is due at once.
UPDATE job SET due_at = 0, updated_at = ?2 WHERE id = ?1
