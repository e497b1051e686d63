INSERT INTO effect (job, key, step, step_id, action, destination, class, state, attempts, absent_reads, reads, n, result, first_at, last_at, term, mac)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
ON CONFLICT (job, key) DO UPDATE
   SET step = excluded.step, action = excluded.action, destination = excluded.destination, class = excluded.class, state = excluded.state,
       attempts = excluded.attempts, absent_reads = excluded.absent_reads, reads = excluded.reads, n = excluded.n, result = excluded.result,
       last_at = excluded.last_at, term = excluded.term, mac = excluded.mac
