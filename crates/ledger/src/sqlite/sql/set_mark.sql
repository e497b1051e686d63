INSERT INTO mark (store, key, owner, event, job, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (store, key) DO UPDATE
   SET owner = excluded.owner, event = excluded.event, job = excluded.job, expires_at = excluded.expires_at
 WHERE mark.expires_at <= ?7
