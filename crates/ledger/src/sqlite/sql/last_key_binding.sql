SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'key_binding'), 0)
