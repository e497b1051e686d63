SELECT result FROM effect WHERE job = ?1 AND key = ?2
