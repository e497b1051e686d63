SELECT id, version FROM payload_shape WHERE source = ?1 AND event_type = ?2
