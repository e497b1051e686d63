INSERT INTO mapping_warning (source, field, code, count, last_at) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (source, field, code) DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at
