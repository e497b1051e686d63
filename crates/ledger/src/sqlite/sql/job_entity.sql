SELECT worker, entity FROM job WHERE id = ?1 AND tries = ?2 AND state < 8
