UPDATE job
   SET state = 0, step = step + CASE WHEN EXISTS (SELECT 1 FROM effect WHERE effect.job = job.id AND effect.state = 'unknown' AND (effect.step_id LIKE '%]' OR effect.step_id LIKE '%.undo%')) THEN 0 ELSE ?2 END, attempts = 0, due_at = ?3, updated_at = ?3, finished_at = NULL, verifying = 0,
       dead_letter_queue = NULL, failure = NULL, message = NULL, replays = replays + 1
 WHERE id = ?1 AND state = 11
RETURNING worker
