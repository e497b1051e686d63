INSERT INTO event_body (ord, sealed) VALUES (?1, ?2)
