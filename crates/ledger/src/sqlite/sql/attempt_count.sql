SELECT count(*) FROM attempt WHERE job = ?1
