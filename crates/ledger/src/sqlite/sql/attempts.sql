SELECT job, n, step_id, kind, started_at, ended_at, outcome, failure, message FROM attempt WHERE job = ?1 ORDER BY n, seq
