SELECT interval_from, charged, reported_used, reported_limit FROM call_budget WHERE destination = ?1 ORDER BY interval_from
