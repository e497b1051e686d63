SELECT seq, event, flow, job, worker, step, received_at, risk_at, deadline, state, look_at FROM response_clock
 WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2
