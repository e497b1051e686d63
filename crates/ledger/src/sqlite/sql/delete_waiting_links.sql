DELETE FROM waiting_link WHERE seq = ?1
