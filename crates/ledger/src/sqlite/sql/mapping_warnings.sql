SELECT field, code, count, last_at FROM mapping_warning WHERE source = ?1 ORDER BY field, code
