DELETE FROM key_run WHERE run = ?1
