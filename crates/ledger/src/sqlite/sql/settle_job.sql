UPDATE job
   SET state = ?3, step = ?4, attempts = ?5, due_at = ?6, verifying = ?7, failure = ?8, dead_letter_queue = ?9, result = ?10,
       updated_at = ?11, finished_at = ?12, message = ?13, attempts_total = ?2, destination = ?14, lane_order = ?15, term = ?16,
       effect_rows = ?17, attempt_rows = ?18, mac = ?19, wait = ?20, room = NULL
 WHERE id = ?1
