INSERT INTO history_last (id, term, minute) VALUES (1, ?1, ?2)
ON CONFLICT (id) DO UPDATE SET term = excluded.term, minute = excluded.minute
