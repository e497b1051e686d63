SELECT id, worker, class, code, state, count, total, first_at, last_at, last_job, changed_at, actor, reason
  FROM failure_group
 WHERE (?1 IS NULL OR (last_at, id) < (?1, ?2)) AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR worker = ?4) AND (?5 IS NULL OR code = ?5)
   AND (count > 0 OR NOT ?6)
 ORDER BY last_at DESC, id DESC LIMIT ?7
