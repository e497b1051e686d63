INSERT INTO history (step, measure, at, points) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (step, measure, at) DO UPDATE SET points = excluded.points
