DELETE FROM event_identity WHERE seq = ?1
