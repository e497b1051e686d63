INSERT INTO payload_shape (source, event_type, version, notices, sealed) VALUES (?1, ?2, 0, 0, x'') RETURNING id
