INSERT INTO meta (name, value) VALUES ('second_net_ms', ?1)
ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)
