SELECT n, id, flow, file, rows, position, accepted, duplicates, quarantined, refused, state, actor, reason, created_at, updated_at FROM import WHERE (?1 IS NULL OR n < ?1) ORDER BY n DESC LIMIT ?2
