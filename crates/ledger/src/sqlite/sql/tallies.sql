SELECT day, source, accepted, duplicates, clashes FROM tally WHERE day >= ?1 ORDER BY day, source
