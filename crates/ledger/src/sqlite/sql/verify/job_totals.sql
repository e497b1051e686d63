SELECT coalesce(t.count, 0) || ' jobs of worker ' || coalesce(t.worker, j.worker) || ' for destination `' || coalesce(t.destination, j.destination)
       || '` are counted in state ' || coalesce(t.state, j.state) || ', and there are ' || coalesce(j.n, 0)
  FROM (SELECT state, worker, destination, coalesce(dead_letter_queue, '') AS dead_letter_queue, queue, revision, wait, count(*) AS n
          FROM job GROUP BY 1, 2, 3, 4, 5, 6, 7) j
  FULL JOIN job_total t
    ON t.state = j.state AND t.worker = j.worker AND t.destination = j.destination AND t.dead_letter_queue = j.dead_letter_queue
   AND t.queue = j.queue AND t.revision = j.revision AND t.wait = j.wait
 WHERE coalesce(t.count, 0) <> coalesce(j.n, 0)
 LIMIT 1
