INSERT INTO configured (at, hash, actor, reason)
SELECT ?2, ?1, ?3, ?4 WHERE ?1 IS NOT (SELECT hash FROM configured ORDER BY n DESC LIMIT 1)
