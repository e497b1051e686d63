UPDATE replay SET after_job = ?2, replayed = replayed + ?3, skipped = skipped + ?4, state = ?5, next_at = ?6, updated_at = ?7 WHERE id = ?1
