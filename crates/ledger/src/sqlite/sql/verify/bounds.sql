SELECT coalesce((SELECT max(seq) FROM event), 0), coalesce((SELECT max(id) FROM job), 0)
