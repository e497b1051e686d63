SELECT seq FROM waiting_event WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2
