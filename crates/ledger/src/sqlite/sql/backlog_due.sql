-- Retrying and waiting jobs that are due and not blocked, in the order of their due times.
SELECT j.id, j.seq, j.worker, j.queue, j.revision, j.entity, j.state, j.step, j.attempts, j.attempts_total, j.due_at, j.verifying, j.created_at, j.updated_at, j.finished_at, j.replays, j.failure, j.message, j.dead_letter_queue, j.result, j.destination, j.lane_order, j.term, j.imported
  FROM deferred q CROSS JOIN job j ON j.id = q.id
 WHERE q.destination = ?1 AND q.worker = ?2 AND q.due_at <= ?3
   AND NOT (j.lane_order = 0 AND EXISTS (
         SELECT 1 FROM deferred d WHERE d.destination = ?1 AND d.worker = ?2 AND d.entity = q.entity AND d.id < q.id AND d.due_at > ?3))
 ORDER BY q.due_at, q.id LIMIT ?4
