DELETE FROM call_budget WHERE destination = ?1 AND interval_from < ?2
