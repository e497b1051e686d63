DELETE FROM alert WHERE kind = ?1 AND subject = ?2
