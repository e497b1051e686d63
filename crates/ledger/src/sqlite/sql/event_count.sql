SELECT coalesce((SELECT sum(accepted) FROM source_day_count), 0) - coalesce((SELECT value FROM meta WHERE name = 'events_pruned'), 0)
