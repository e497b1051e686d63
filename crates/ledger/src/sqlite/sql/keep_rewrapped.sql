INSERT INTO meta (name, value) VALUES ('rewrapped', ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
