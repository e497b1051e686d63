INSERT INTO meta (name, value) VALUES ('events_pruned', ?1) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value
