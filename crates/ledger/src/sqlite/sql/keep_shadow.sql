UPDATE shadow SET active = ?4, seen = ?5, sealed = ?6 WHERE hash = ?1 AND started_at = ?2 AND seen = ?3
