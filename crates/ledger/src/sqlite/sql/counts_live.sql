SELECT worker, state, count(*) FROM job WHERE state < 8 GROUP BY worker, state
