UPDATE job
   SET state = 0, attempts = 0, due_at = ?2, updated_at = ?2, finished_at = NULL, dead_letter_queue = NULL, failure = NULL, message = NULL,
       replays = replays + 1, revision = coalesce(?3, revision),
       step = CASE WHEN ?3 <> revision THEN 0 ELSE step END,
       verifying = CASE WHEN EXISTS (SELECT 1 FROM effect WHERE effect.job = job.id AND effect.state = 'unknown' AND effect.class = 'verifiable') THEN 1 ELSE 0 END
 WHERE id = ?1 AND state IN (8, 9, 10)
RETURNING worker
