DELETE FROM key_index WHERE run = ?1
