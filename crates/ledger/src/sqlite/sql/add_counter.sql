INSERT INTO counter (measure, first, second, total, recorded) VALUES (?1, ?2, ?3, ?4, 0)
ON CONFLICT (measure, first, second) DO UPDATE SET total = total + excluded.total
