UPDATE job SET effect_rows = ?2, mac = ?3 WHERE id = ?1
