SELECT day, source, accepted, duplicates, clashes, by_content, pruned FROM source_day_count WHERE day >= ?1 ORDER BY day, source
