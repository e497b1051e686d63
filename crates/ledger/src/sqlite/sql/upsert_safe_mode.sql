INSERT INTO safe_mode (worker, at, until, actor, reason) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (worker) DO UPDATE SET at = excluded.at, until = excluded.until, actor = excluded.actor, reason = excluded.reason
