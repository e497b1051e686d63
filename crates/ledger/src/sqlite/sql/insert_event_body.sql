INSERT INTO event_body (seq, sealed) VALUES (?1, ?2)
