SELECT message FROM job WHERE id = ?1
