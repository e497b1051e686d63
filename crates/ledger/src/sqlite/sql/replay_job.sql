UPDATE job
   SET state = 0, wait = '', attempts = 0, due_at = ?2, updated_at = ?2, finished_at = NULL, dead_letter_queue = NULL, failure = NULL, message = NULL,
       replays = replays + 1, revision = ?3, destination = ?4,
       step = CASE WHEN ?5 THEN 0 ELSE step END,
       lane_order = CASE WHEN ?5 THEN 0 ELSE lane_order END,
       verifying = EXISTS (SELECT 1 FROM effect WHERE effect.job = job.id AND effect.state = 'unknown' AND effect.class = 'verifiable')
 WHERE id = ?1
