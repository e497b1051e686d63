DELETE FROM response_clock WHERE seq = ?1
