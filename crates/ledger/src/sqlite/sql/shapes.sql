SELECT id, source, event_type, version, sealed FROM payload_shape WHERE ?1 IS NULL OR source = ?1 ORDER BY source, event_type
