SELECT coalesce((SELECT sum(accepted - pruned) FROM source_day_count), 0)
