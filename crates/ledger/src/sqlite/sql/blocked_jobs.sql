-- The oldest queued jobs of a destination and worker, and the oldest deferred job of each one's lane that is not due.
SELECT j.id, j.created_at,
       (SELECT d.id FROM deferred d
         WHERE d.destination = ?1 AND d.worker = ?2 AND d.entity = j.entity AND d.id < j.id AND d.due_at > ?3 ORDER BY d.id LIMIT 1)
  FROM job j
 WHERE j.state IN (0, 1) AND j.state = 0 AND j.lane_order = 0 AND j.destination = ?1 AND j.worker = ?2
 ORDER BY j.id LIMIT ?4
