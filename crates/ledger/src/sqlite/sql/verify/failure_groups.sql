SELECT coalesce(g.count, 0) || ' dead letters of worker ' || coalesce(g.worker, j.worker) || ' are counted with the failure '
       || coalesce(g.class, j.class) || ' ' || coalesce(g.code, j.code) || ', and there are ' || coalesce(j.n, 0)
  FROM (SELECT worker, failure ->> '$.class' AS class, failure ->> '$.code' AS code, count(*) AS n
          FROM job WHERE state = 10 AND failure ->> '$.class' IS NOT NULL AND failure ->> '$.code' IS NOT NULL GROUP BY 1, 2, 3) j
  FULL JOIN failure_group g
    ON g.worker = j.worker AND g.class = j.class AND g.code = j.code
 WHERE coalesce(g.count, 0) <> coalesce(j.n, 0) OR g.total < g.count OR g.first_at > g.last_at
 LIMIT 1
