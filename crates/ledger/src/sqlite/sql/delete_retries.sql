DELETE FROM retry_spent WHERE (worker, entity, until, job, n) IN (SELECT worker, entity, until, job, n FROM retry_spent WHERE until <= ?1 LIMIT ?2)
