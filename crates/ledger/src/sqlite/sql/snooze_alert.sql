UPDATE alert SET snoozed_until = ?3 WHERE kind = ?1 AND subject = ?2
