SELECT last || ' jobs were numbered, ' || pruned || ' were pruned, and there are ' || found
  FROM (SELECT max(coalesce((SELECT max(id) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'last_job'), 0)) AS last,
               coalesce((SELECT count FROM pruned_total WHERE kind = 'job'), 0) AS pruned,
               (SELECT count(*) FROM job) AS found)
 WHERE last <> pruned + found
