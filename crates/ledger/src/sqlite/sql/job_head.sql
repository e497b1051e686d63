SELECT j.contact, j.state, j.attempts_total, j.term, j.worker, j.queue, j.revision, j.destination, j.dead_letter_queue, j.entity,
       j.seq, j.created_at, j.effect_rows, j.attempt_rows, j.result, e.id, j.id - e.first_job, j.wait, j.replays
  FROM job j JOIN event e ON e.seq = j.seq WHERE j.id = ?1
