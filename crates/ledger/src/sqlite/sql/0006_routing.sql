-- Standard names: the sequence number of an event, attempts in all, counts of a source by day.
ALTER TABLE event RENAME COLUMN ord TO seq;
ALTER TABLE event_body RENAME COLUMN ord TO seq;
ALTER TABLE variant RENAME COLUMN ord TO seq;
ALTER TABLE job RENAME COLUMN ord TO seq;
ALTER TABLE job RENAME COLUMN tries TO attempts_total;
ALTER TABLE key_run RENAME COLUMN first_ord TO first_seq;
ALTER TABLE key_run RENAME COLUMN last_ord TO last_seq;
ALTER TABLE contact_run RENAME COLUMN first_ord TO first_seq;
ALTER TABLE contact_run RENAME COLUMN last_ord TO last_seq;
ALTER TABLE tally RENAME TO source_day_count;
UPDATE meta SET name = 'last_seq' WHERE name = 'last_ord';
UPDATE meta SET name = 'content_window_ms' WHERE name = 'second_net_ms';

-- Where a job waits: the destination that it calls next (empty: internal steps come first), and whether jobs of one entity keep
-- their order there (0: fifo, 1: none). The term is that of the owner that wrote the row last.
ALTER TABLE job ADD COLUMN destination TEXT NOT NULL DEFAULT '';
ALTER TABLE job ADD COLUMN lane_order INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN term INTEGER NOT NULL DEFAULT 0;
ALTER TABLE effect ADD COLUMN term INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt ADD COLUMN term INTEGER NOT NULL DEFAULT 0;

-- Queued and running jobs. A queued job that begins changes no entry.
DROP INDEX job_live;
CREATE INDEX job_ready ON job (destination, worker, id) WHERE state IN (0, 1);

-- Retrying and waiting jobs, by job id. Apart from the job table: each of its indexes would cost every statement that writes a
-- job, and most jobs are never deferred.
CREATE TABLE deferred (
  id          INTEGER PRIMARY KEY,
  destination TEXT    NOT NULL,
  worker      TEXT    NOT NULL,
  entity      INTEGER NOT NULL,
  due_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX deferred_due ON deferred (destination, worker, due_at);
-- Whether an older job of a lane is deferred.
CREATE INDEX deferred_lane ON deferred (destination, worker, entity, id, due_at);
-- The oldest deferred job of a worker.
CREATE INDEX deferred_worker ON deferred (worker);

INSERT INTO deferred (id, destination, worker, entity, due_at) SELECT id, destination, worker, entity, due_at FROM job WHERE state IN (2, 3);

-- Dead and unknown jobs of a dead-letter queue.
DROP INDEX job_parked;
CREATE INDEX job_parked ON job (dead_letter_queue, id) WHERE state IN (10, 11);

-- Number of jobs of each kind, written with the jobs. An empty dead-letter queue means none.
CREATE TABLE job_total (
  state             INTEGER NOT NULL,
  worker            TEXT    NOT NULL,
  destination       TEXT    NOT NULL,
  dead_letter_queue TEXT    NOT NULL,
  queue             TEXT    NOT NULL,
  revision          TEXT    NOT NULL,
  count             INTEGER NOT NULL,
  PRIMARY KEY (state, worker, destination, dead_letter_queue, queue, revision)
) STRICT, WITHOUT ROWID;

INSERT INTO job_total (state, worker, destination, dead_letter_queue, queue, revision, count)
SELECT state, worker, destination, coalesce(dead_letter_queue, ''), queue, revision, count(*) FROM job GROUP BY 1, 2, 3, 4, 5, 6;

-- Events in all = accepted events of all days - pruned events.
INSERT INTO meta (name, value)
SELECT 'events_pruned', coalesce((SELECT sum(accepted) FROM source_day_count), 0) - (SELECT count(*) FROM event);
