SELECT sealed FROM event_body WHERE ord = ?1
