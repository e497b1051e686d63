UPDATE job
   SET state = 0, wait = '', step = step + ?2, destination = ?4, lane_order = CASE WHEN ?2 = 0 THEN lane_order ELSE 0 END,
       attempts = 0, due_at = ?3, updated_at = ?3, finished_at = NULL, verifying = 0,
       dead_letter_queue = NULL, failure = NULL, message = NULL, replays = replays + 1
 WHERE id = ?1
