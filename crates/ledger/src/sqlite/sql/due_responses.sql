SELECT c.seq, c.event, c.flow, c.job, c.worker, c.step, c.received_at, c.risk_at, c.deadline, c.state, c.look_at, j.state, coalesce(j.finished_at, j.updated_at)
  FROM response_clock c LEFT JOIN job j ON j.id = c.job WHERE c.look_at <= ?1 ORDER BY c.look_at, c.seq LIMIT ?2
