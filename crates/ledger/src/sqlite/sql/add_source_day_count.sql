INSERT INTO source_day_count (day, source, accepted, duplicates, clashes, by_content) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (day, source) DO UPDATE
   SET accepted = accepted + excluded.accepted, duplicates = duplicates + excluded.duplicates, clashes = clashes + excluded.clashes,
       by_content = by_content + excluded.by_content
