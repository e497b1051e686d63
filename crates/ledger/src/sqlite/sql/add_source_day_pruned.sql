INSERT INTO source_day_count (day, source, accepted, duplicates, clashes, by_content, pruned) VALUES (?1, ?2, 0, 0, 0, 0, ?3)
ON CONFLICT (day, source) DO UPDATE SET pruned = pruned + excluded.pruned
