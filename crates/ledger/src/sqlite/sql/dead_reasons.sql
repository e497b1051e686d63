SELECT coalesce(failure ->> '$.class', ''), coalesce(failure ->> '$.code', ''), count(*), max(updated_at), max(id)
  FROM job WHERE state IN (10, 11) AND updated_at >= ?1
 GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT ?2
