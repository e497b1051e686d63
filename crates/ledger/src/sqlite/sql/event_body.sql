SELECT sealed FROM event_body WHERE seq = ?1
