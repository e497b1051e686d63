SELECT seq FROM waiting_link WHERE digest = ?1 AND expires_at > ?2 ORDER BY seq LIMIT ?3
