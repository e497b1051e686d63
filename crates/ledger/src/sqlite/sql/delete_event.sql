DELETE FROM event WHERE ord = ?1
