DELETE FROM waiting_event WHERE seq = ?1
