INSERT INTO meta (name, value) VALUES ('change_seq', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value
