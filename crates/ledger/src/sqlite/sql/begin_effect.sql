INSERT INTO effect (job, step, step_id, key, action, destination, class, state, attempts, absent_reads, reads, first_at, last_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'intent', 1, 0, 0, ?8, ?8)
ON CONFLICT (job, step) DO UPDATE
   SET state = 'intent', attempts = attempts + 1, absent_reads = 0, reads = 0, class = excluded.class, last_at = excluded.last_at
 WHERE state NOT IN ('applied', 'skipped')
