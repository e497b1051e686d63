SELECT 'on ' || day || ' the source ' || source || ' has ' || sum(events) || ' events, ' || sum(accepted) || ' were counted as accepted and '
       || sum(pruned) || ' as pruned'
  FROM (SELECT day, source, accepted, pruned, 0 AS events FROM source_day_count
        UNION ALL
        SELECT strftime('%Y-%m-%d', e.persisted_at / 1000, 'unixepoch'), e.source, 0, 0, 1 FROM event e)
 GROUP BY day, source HAVING sum(accepted) <> sum(pruned) + sum(events)
 LIMIT 1
