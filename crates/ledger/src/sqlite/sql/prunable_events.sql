SELECT e.seq, e.persisted_at, e.expires_at >= ?1 OR EXISTS (SELECT 1 FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND (j.state < 8 OR j.state IN (10, 11))), e.first_job, e.jobs, e.source
  FROM event e WHERE e.seq > ?2 ORDER BY e.seq
