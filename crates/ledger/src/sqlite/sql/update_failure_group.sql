UPDATE failure_group SET state = ?2, count = ?3, total = ?4, last_at = ?5, last_job = ?6, changed_at = ?7, actor = ?8, reason = ?9 WHERE id = ?1
