INSERT INTO history_series (measure, first, second) VALUES (?1, ?2, ?3)
