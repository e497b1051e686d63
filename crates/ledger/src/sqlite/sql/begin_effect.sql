INSERT INTO effect (job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, n, first_at, last_at, term)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'intent', 1, 0, 0, ?9, ?8, ?8, ?10)
ON CONFLICT (job, key) DO UPDATE
   SET state = 'intent', attempts = attempts + 1, absent_reads = 0, reads = 0, step = excluded.step, n = excluded.n, term = excluded.term,
       action = excluded.action, destination = excluded.destination, class = excluded.class, last_at = excluded.last_at
 WHERE state NOT IN ('applied', 'skipped')
