SELECT max(coalesce((SELECT max(ord) FROM event), 0), coalesce((SELECT value FROM meta WHERE name = 'last_ord'), 0))
