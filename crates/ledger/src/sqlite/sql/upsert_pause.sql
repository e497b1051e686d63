INSERT INTO pause (target, at, actor, reason) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (target) DO UPDATE SET at = excluded.at, actor = excluded.actor, reason = excluded.reason
