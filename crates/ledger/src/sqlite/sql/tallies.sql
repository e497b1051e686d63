SELECT day, source, accepted, duplicates, clashes, by_content FROM tally WHERE day >= ?1 ORDER BY day, source
