SELECT id, at, actor, action, object, detail
  FROM audit
 WHERE id < ?1 AND id >= ?2 AND (?3 IS NULL OR actor = ?3) AND (?4 IS NULL OR action = ?4)
   AND (?5 IS NULL OR substr(object, 1, length(?5)) = ?5) AND (?6 IS NULL OR at >= ?6) AND (?7 IS NULL OR at < ?7)
 ORDER BY id DESC LIMIT ?8
