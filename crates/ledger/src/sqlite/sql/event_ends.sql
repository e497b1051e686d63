SELECT (SELECT min(seq) FROM event), (SELECT max(seq) FROM event)
