DELETE FROM event_revision WHERE seq = ?1
