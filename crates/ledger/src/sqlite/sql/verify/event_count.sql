SELECT 'by the counts of accepted and pruned events there are ' || counted || ' events, and there are ' || found
  FROM (SELECT coalesce((SELECT sum(accepted) FROM source_day_count), 0) - coalesce((SELECT value FROM meta WHERE name = 'events_pruned'), 0) AS counted,
               (SELECT count(*) FROM event) AS found)
 WHERE counted <> found
