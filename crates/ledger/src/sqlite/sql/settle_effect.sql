UPDATE effect SET state = ?3, result = coalesce(?4, result), absent_reads = ?5, reads = ?6, last_at = ?7, step = ?8, term = ?9
 WHERE job = ?1 AND key = ?2 AND state NOT IN ('applied', 'skipped')
