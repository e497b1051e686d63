INSERT INTO meta (name, value) VALUES ('term', ?1) ON CONFLICT (name) DO UPDATE SET value = excluded.value
