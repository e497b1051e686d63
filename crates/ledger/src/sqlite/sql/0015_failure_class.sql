-- The failure class `maybe` is called `conflict`: filters and totals of dead letters compare the stored text. An attempt that has a
-- MAC stays as it was written; its class is read under either name.
UPDATE job SET failure = json_set(failure, '$.class', 'conflict') WHERE failure ->> '$.class' = 'maybe';
UPDATE attempt SET failure = json_set(failure, '$.class', 'conflict') WHERE mac IS NULL AND failure ->> '$.class' = 'maybe';
