-- The severity that an alert fired with, and when what it tells of began.
ALTER TABLE alert ADD COLUMN severity TEXT NOT NULL DEFAULT 'warning';
ALTER TABLE alert ADD COLUMN began INTEGER NOT NULL DEFAULT 0;

UPDATE alert SET severity = 'critical' WHERE kind IN ('breaker-open', 'unauthorized', 'disk-full');
UPDATE alert SET began = since;
