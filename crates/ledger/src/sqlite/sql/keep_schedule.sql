INSERT INTO schedule (worker, rule, since) VALUES (?1, ?2, ?3)
ON CONFLICT (worker) DO UPDATE SET since = CASE WHEN rule = excluded.rule THEN since ELSE excluded.since END, rule = excluded.rule
RETURNING since
