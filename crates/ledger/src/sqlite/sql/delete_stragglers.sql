DELETE FROM straggler WHERE job >= ?1 AND job < ?2
