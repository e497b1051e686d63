SELECT id, worker, state, attempts_total FROM job WHERE id >= ?1 AND id < ?2 ORDER BY id
