UPDATE effect SET state = ?3, result = coalesce(?4, result), absent_reads = ?5, reads = ?6, last_at = ?7
 WHERE job = ?1 AND key = (SELECT key FROM effect WHERE job = ?1 AND step = ?2 ORDER BY n DESC LIMIT 1)
   AND state NOT IN ('applied', 'skipped')
