SELECT j.id, e.id, j.worker, j.queue, j.entity, j.created_at, j.contact, j.effect_rows, j.attempt_rows, j.result, j.mac FROM job j JOIN event e ON e.seq = j.seq WHERE j.id > ?1 AND j.id <= ?2
