INSERT INTO attempt (job, n, seq, step_id, kind, started_at, ended_at, outcome, failure, message, term, mac)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
