INSERT INTO event_duplicate (seq, count, first_at, last_at, recent) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (seq) DO UPDATE SET count = excluded.count, last_at = excluded.last_at, recent = excluded.recent
