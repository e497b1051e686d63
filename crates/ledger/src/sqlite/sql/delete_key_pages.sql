DELETE FROM key_page WHERE id >= ?1 AND id < ?2
