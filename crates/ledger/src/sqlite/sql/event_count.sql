SELECT count(*) FROM event
