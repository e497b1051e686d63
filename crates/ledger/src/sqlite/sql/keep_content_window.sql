INSERT INTO meta (name, value) VALUES ('content_window_ms', ?1)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
