DELETE FROM event_body WHERE ord IN (
  SELECT e.ord FROM event_body b JOIN event e ON e.ord = b.ord
   WHERE e.persisted_at < ?1
     AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND (j.state < 8 OR j.state IN (10, 11)))
   ORDER BY e.ord LIMIT ?2)
