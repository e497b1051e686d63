SELECT coalesce(max(id), 0) FROM record_ref
