SELECT coalesce(max(id), 0) FROM history_series
