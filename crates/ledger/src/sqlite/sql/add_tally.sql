INSERT INTO tally (day, source, accepted, duplicates, clashes) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (day, source) DO UPDATE
   SET accepted = accepted + excluded.accepted, duplicates = duplicates + excluded.duplicates, clashes = clashes + excluded.clashes
