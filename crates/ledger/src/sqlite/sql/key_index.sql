SELECT bytes FROM key_index WHERE run = ?1 AND kind = ?2 ORDER BY chunk
