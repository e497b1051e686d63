INSERT INTO meta (name, value) VALUES ('root_check', ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
