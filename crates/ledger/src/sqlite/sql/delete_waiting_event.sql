DELETE FROM waiting_event WHERE seq = ?1 RETURNING expires_at
