SELECT 'event ' || e.ord || ' says that it has ' || e.jobs || ' jobs, and has ' || (SELECT count(*) FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND j.ord = e.ord)
  FROM event e
 WHERE e.ord > ?1 AND e.ord <= ?2
   AND e.jobs <> (SELECT count(*) FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND j.ord = e.ord)
 LIMIT 1
