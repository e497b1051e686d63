SELECT max(coalesce((SELECT max(seq) FROM event), 0), coalesce((SELECT value FROM meta WHERE name = 'last_seq'), 0))
