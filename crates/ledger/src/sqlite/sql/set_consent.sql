INSERT INTO consent (contact, purpose, granted, at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (contact, purpose) DO UPDATE SET granted = excluded.granted, at = excluded.at WHERE excluded.at >= at
