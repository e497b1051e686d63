-- Queued and running jobs in the order of their ids, and whether an older deferred job of the worker in its lane blocks each.
SELECT j.id, j.seq, j.worker, j.queue, j.revision, j.entity, j.state, j.step, j.attempts, j.attempts_total, j.due_at, j.verifying, j.created_at, j.updated_at, j.finished_at, j.replays, j.failure, j.message, j.dead_letter_queue, j.result, j.destination, j.lane_order, j.term, j.imported,
       j.lane_order = 0 AND j.state = 0 AND EXISTS (
         SELECT 1 FROM deferred d WHERE d.destination = ?1 AND d.worker = ?2 AND d.entity = j.entity AND d.id < j.id AND d.due_at > ?4)
  FROM job j
 WHERE j.state IN (0, 1) AND j.destination = ?1 AND j.worker = ?2 AND j.id > ?3
 ORDER BY j.id LIMIT ?5
