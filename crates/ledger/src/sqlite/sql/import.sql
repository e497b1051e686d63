SELECT n, id, flow, file, rows, position, accepted, duplicates, quarantined, refused, state, actor, reason, created_at, updated_at FROM import WHERE id = ?1
