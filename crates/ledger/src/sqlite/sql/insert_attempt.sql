INSERT INTO attempt (job, n, seq, step_id, kind, started_at, ended_at, outcome, failure, message, term)
VALUES (?1, ?2, (SELECT count(*) FROM attempt WHERE job = ?1 AND n = ?2), ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
