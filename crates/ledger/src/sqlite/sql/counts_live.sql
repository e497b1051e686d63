-- One walk of the live index in its own order. Grouped by state as well it would be sorted first, in memory: 100 MiB for a
-- million jobs at each look.
WITH counted AS MATERIALIZED (
  SELECT worker, sum(state = 0) AS queued, sum(state = 1) AS running, sum(state = 2) AS retrying, sum(state = 3) AS waiting
    FROM job WHERE state < 8 GROUP BY worker)
SELECT worker, 0, queued FROM counted WHERE queued > 0
UNION ALL SELECT worker, 1, running FROM counted WHERE running > 0
UNION ALL SELECT worker, 2, retrying FROM counted WHERE retrying > 0
UNION ALL SELECT worker, 3, waiting FROM counted WHERE waiting > 0
