UPDATE job SET state = 1, wait = '', attempts_total = ?2, updated_at = ?3, term = ?4, effect_rows = ?5, mac = ?6 WHERE id = ?1
