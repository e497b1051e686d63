INSERT INTO effect (job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, n, result, first_at, last_at, term)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
ON CONFLICT (job, key) DO UPDATE
   SET state = excluded.state, attempts = attempts + 1, absent_reads = excluded.absent_reads, reads = excluded.reads, term = excluded.term,
       step = excluded.step, n = excluded.n, action = excluded.action, destination = excluded.destination, class = excluded.class,
       result = coalesce(excluded.result, result), last_at = excluded.last_at
 WHERE state NOT IN ('applied', 'skipped')
