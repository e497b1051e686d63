DELETE FROM job WHERE id >= ?1 AND id < ?2
