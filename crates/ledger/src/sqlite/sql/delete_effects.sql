DELETE FROM effect WHERE job >= ?1 AND job < ?2
