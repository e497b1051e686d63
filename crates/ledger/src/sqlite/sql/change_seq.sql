SELECT coalesce((SELECT value FROM meta WHERE name = 'change_seq'), 0)
