UPDATE job
   SET state = 0,
       step = step + CASE WHEN (SELECT step_id LIKE '%]' OR step_id LIKE '%.undo%' FROM effect
                                 WHERE effect.job = job.id AND effect.state = 'unknown' ORDER BY n DESC LIMIT 1)
                          THEN 0 ELSE ?2 END,
       attempts = 0, due_at = ?3, updated_at = ?3, finished_at = NULL, verifying = 0,
       dead_letter_queue = NULL, failure = NULL, message = NULL, replays = replays + 1
 WHERE id = ?1 AND state = 11
RETURNING worker
