DELETE FROM safe_mode WHERE worker = ?1
