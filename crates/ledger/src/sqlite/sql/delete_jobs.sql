DELETE FROM job WHERE id >= ?1 AND id < ?2 RETURNING state, worker, destination, dead_letter_queue, queue, revision
