-- Live jobs of a list, and the oldest deferred job of each one's lane that is not due.
SELECT j.id,
       (SELECT d.id FROM deferred d
         WHERE d.destination = j.destination AND d.worker = j.worker AND d.entity = j.entity AND d.id < j.id AND d.due_at > ?2
         ORDER BY d.id LIMIT 1)
  FROM job j
 WHERE j.id IN (SELECT value FROM json_each(?1)) AND j.state < 8 AND j.state <> 1 AND j.lane_order = 0
 ORDER BY j.id
