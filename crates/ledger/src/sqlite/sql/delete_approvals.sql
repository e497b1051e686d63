DELETE FROM approval WHERE job >= ?1 AND job < ?2
