SELECT e.seq, e.persisted_at, EXISTS (SELECT 1 FROM job j WHERE j.id >= e.first_job AND j.id < e.first_job + e.jobs AND (j.state < 8 OR j.state IN (10, 11))), e.id
  FROM event_body b JOIN event e ON e.seq = b.seq WHERE b.seq > ?1 ORDER BY b.seq
