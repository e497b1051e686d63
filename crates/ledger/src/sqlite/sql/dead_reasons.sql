SELECT coalesce(failure ->> '$.class', ''), coalesce(failure ->> '$.code', ''), max(coalesce(failure ->> '$.message', '')), count(*), max(updated_at)
  FROM job WHERE state IN (10, 11) AND updated_at >= ?1
 GROUP BY 1, 2 ORDER BY 4 DESC, 1, 2 LIMIT ?2
