SELECT state IN ('applied', 'skipped') FROM effect WHERE job = ?1 AND key = ?2
