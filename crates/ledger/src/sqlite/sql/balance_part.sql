SELECT day, source, worst, count(*)
  FROM (SELECT strftime('%Y-%m-%d', e.persisted_at / 1000, 'unixepoch') AS day, e.source AS source,
               coalesce((SELECT max(CASE WHEN j.state = 10 THEN 6 WHEN j.state = 11 THEN 5 WHEN j.state < 8 THEN 4 WHEN j.state = 12 THEN 3 WHEN j.state = 8 THEN 2 ELSE 1 END)
                           FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs), 0) AS worst
          FROM event e WHERE e.seq > ?1 AND e.seq <= ?2)
 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
