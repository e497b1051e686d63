UPDATE job
   SET state = 0, step = ?2, attempts = 0, due_at = ?3, updated_at = ?4, finished_at = NULL, verifying = 1, destination = ?5, lane_order = 0
 WHERE id = ?1
