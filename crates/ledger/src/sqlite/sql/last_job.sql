SELECT max(coalesce((SELECT max(id) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'last_job'), 0))
