SELECT min(id) FROM key_page WHERE id >= ?1
