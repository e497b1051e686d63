SELECT CAST(unixepoch(day) AS INTEGER) * 1000 FROM source_day_count WHERE source = ?1 AND accepted > pruned ORDER BY day DESC
