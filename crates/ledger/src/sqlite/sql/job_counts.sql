SELECT state, count(*) FROM job GROUP BY state ORDER BY state
