SELECT 'the audit trail has ' || found || ' dead letters that retention dropped, and ' || counted || ' were counted'
  FROM (SELECT (SELECT count(*) FROM audit WHERE actor = 'retention' AND action = 'drop') AS found,
               coalesce((SELECT count FROM pruned_total WHERE kind = 'dead_letter'), 0) AS counted)
 WHERE found <> counted
