-- Why a waiting job waits (approval, policy, safe-mode, read-back, throttled, delay); empty for other jobs. Waiting jobs are counted by it.
ALTER TABLE job ADD COLUMN wait TEXT NOT NULL DEFAULT '';
UPDATE job SET wait = CASE WHEN verifying THEN 'read-back' WHEN failure IS NULL THEN 'delay'
                           WHEN failure ->> '$.code' = 'approval' THEN 'approval' WHEN failure ->> '$.code' = 'policy-wait' THEN 'policy'
                           WHEN failure ->> '$.code' = 'safe-mode' THEN 'safe-mode' ELSE 'throttled' END
 WHERE id IN (SELECT id FROM deferred) AND state = 3;

DROP TABLE job_total;
CREATE TABLE job_total (
  state             INTEGER NOT NULL,
  worker            TEXT    NOT NULL,
  destination       TEXT    NOT NULL,
  dead_letter_queue TEXT    NOT NULL,
  queue             TEXT    NOT NULL,
  revision          TEXT    NOT NULL,
  wait              TEXT    NOT NULL,
  count             INTEGER NOT NULL,
  PRIMARY KEY (state, worker, destination, dead_letter_queue, queue, revision, wait)
) STRICT, WITHOUT ROWID;

INSERT INTO job_total (state, worker, destination, dead_letter_queue, queue, revision, wait, count)
SELECT state, worker, destination, coalesce(dead_letter_queue, ''), queue, revision, wait, count(*) FROM job GROUP BY 1, 2, 3, 4, 5, 6, 7;
