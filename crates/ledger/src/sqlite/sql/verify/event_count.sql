SELECT 'by the counts of sources ' || by_source || ' events were pruned, and by the total ' || total
  FROM (SELECT coalesce((SELECT sum(pruned) FROM source_day_count), 0) AS by_source,
               coalesce((SELECT count FROM pruned_total WHERE kind = 'event'), 0) AS total)
 WHERE by_source <> total
