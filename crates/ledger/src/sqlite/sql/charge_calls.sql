INSERT INTO call_budget (destination, interval_from, charged, reported_used, reported_limit) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (destination, interval_from) DO UPDATE SET
  charged = CASE WHEN ?6 THEN excluded.charged ELSE max(charged, excluded.charged) END,
  reported_used = coalesce(excluded.reported_used, reported_used), reported_limit = coalesce(excluded.reported_limit, reported_limit)
