INSERT OR REPLACE INTO response_clock (seq, event, flow, job, worker, step, received_at, risk_at, deadline, state, look_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
