INSERT INTO event_body (ord, headers, raw, normalized) VALUES (?1, ?2, ?3, ?4)
