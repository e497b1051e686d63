-- What `verify` compares rows with. A MAC covers the content of its row under a tenant key; the job counts its effects and attempts.
-- A job that no run has written has no MAC. Rows of older jobs and events have none of these: NULL.
ALTER TABLE job ADD COLUMN effect_rows INTEGER;
ALTER TABLE job ADD COLUMN attempt_rows INTEGER;
ALTER TABLE job ADD COLUMN mac BLOB;
ALTER TABLE effect ADD COLUMN mac BLOB;
ALTER TABLE attempt ADD COLUMN mac BLOB;
-- Set when the body is pruned: a MAC of the event id.
ALTER TABLE event ADD COLUMN body_pruned BLOB;
-- Jobs and events from these numbers on are checked by their MACs.
INSERT INTO meta (name, value)
SELECT 'first_mac_job', max(coalesce((SELECT max(id) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'last_job'), 0)) + 1;
INSERT INTO meta (name, value)
SELECT 'first_mac_seq', max(coalesce((SELECT max(seq) FROM event), 0), coalesce((SELECT value FROM meta WHERE name = 'last_seq'), 0)) + 1;
