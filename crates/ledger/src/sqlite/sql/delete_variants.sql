DELETE FROM variant WHERE seq = ?1
