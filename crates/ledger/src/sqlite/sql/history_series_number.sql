SELECT id FROM history_series WHERE measure = ?1 AND first = ?2 AND second = ?3
