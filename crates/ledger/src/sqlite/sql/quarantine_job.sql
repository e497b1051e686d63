UPDATE job SET state = ?2, finished_at = created_at, failure = ?3, message = ?4, dead_letter_queue = ?5 WHERE id = ?1
