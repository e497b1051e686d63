SELECT id, first, second FROM history_series WHERE measure = ?1
