DELETE FROM variant WHERE ord = ?1
