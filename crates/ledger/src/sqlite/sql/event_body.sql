SELECT headers, raw, normalized FROM event_body WHERE ord = ?1
