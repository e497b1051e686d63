SELECT day, source, sum(accepted), sum(duplicates), sum(events), sum(pruned), sum(worst = 2), sum(worst IN (0, 1)), sum(worst = 6), sum(worst = 4), sum(worst = 5), sum(worst = 3)
  FROM (SELECT day, source, accepted, duplicates, pruned, 0 AS events, NULL AS worst FROM source_day_count WHERE day >= ?1
        UNION ALL
        SELECT strftime('%Y-%m-%d', e.persisted_at / 1000, 'unixepoch'), e.source, 0, 0, 0, 1,
               coalesce((SELECT max(CASE WHEN j.state = 10 THEN 6 WHEN j.state = 11 THEN 5 WHEN j.state < 8 THEN 4 WHEN j.state = 12 THEN 3 WHEN j.state = 8 THEN 2 ELSE 1 END)
                           FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs), 0)
          FROM event e WHERE e.persisted_at >= ?2)
 GROUP BY day, source ORDER BY day, source
