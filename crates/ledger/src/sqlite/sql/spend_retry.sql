INSERT OR IGNORE INTO retry_spent (worker, entity, until, job, n) VALUES (?1, ?2, ?3, ?4, ?5)
