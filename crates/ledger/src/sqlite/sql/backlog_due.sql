-- Retrying and waiting jobs that are due and not blocked, in the order of their due times.
SELECT j.id, j.seq, j.worker, j.queue, j.revision, j.entity, j.state, j.step, j.attempts, j.attempts_total, j.due_at, j.verifying, j.created_at, j.updated_at, j.finished_at, j.replays, j.failure, j.message, j.dead_letter_queue, j.result, j.destination, j.lane_order, j.term
  FROM job j
 WHERE j.state IN (2, 3) AND j.destination = ?1 AND j.worker = ?2 AND j.due_at <= ?3
   AND NOT (j.lane_order = 0 AND EXISTS (
         SELECT 1 FROM job d
          WHERE d.state IN (2, 3) AND d.destination = ?1 AND d.entity = j.entity AND d.id < j.id AND d.due_at > ?3 AND d.worker = ?2))
 ORDER BY j.due_at, j.id LIMIT ?4
