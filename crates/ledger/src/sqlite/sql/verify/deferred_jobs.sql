SELECT 'job_' || j.id || ' is in state ' || j.state || ', and ' || CASE WHEN j.state IN (2, 3) THEN 'is not listed as deferred as it is' ELSE 'is listed as deferred' END
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2
   AND (j.state IN (2, 3)) <> EXISTS (SELECT 1 FROM deferred d WHERE d.id = j.id AND (j.state NOT IN (2, 3)
        OR d.destination = j.destination AND d.worker = j.worker AND d.entity = j.entity AND d.due_at = j.due_at))
 LIMIT 1
