SELECT job, n, seq, step_id, kind, started_at, ended_at, outcome, failure, message, term, mac FROM attempt WHERE job > ?1 AND job <= ?2
