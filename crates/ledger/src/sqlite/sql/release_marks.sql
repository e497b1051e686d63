DELETE FROM mark WHERE job = ?1
