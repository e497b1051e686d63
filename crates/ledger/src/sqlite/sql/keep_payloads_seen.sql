INSERT INTO meta (name, value) VALUES ('payloads_seen', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1
