UPDATE suppression SET at = ?2, actor = ?3, reason = ?4, label = ?5 WHERE id = ?1
