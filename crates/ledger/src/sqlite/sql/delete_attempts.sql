DELETE FROM attempt WHERE job >= ?1 AND job < ?2
