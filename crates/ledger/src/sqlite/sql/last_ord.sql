SELECT coalesce(max(ord), 0) FROM event
