SELECT coalesce((SELECT max(ord) FROM event), 0), coalesce((SELECT max(id) FROM job), 0)
