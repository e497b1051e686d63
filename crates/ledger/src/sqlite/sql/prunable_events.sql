SELECT ord, first_job, jobs FROM event e
 WHERE e.persisted_at < ?1 AND e.expires_at < ?2
   AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND (j.state < 8 OR j.state IN (10, 11)))
 ORDER BY ord LIMIT ?3
