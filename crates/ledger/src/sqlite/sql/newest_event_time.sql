SELECT persisted_at FROM event ORDER BY seq DESC LIMIT 1
