SELECT id, worker, class, code, state, count, total, first_at, last_at, last_job, changed_at, actor, reason FROM failure_group WHERE id = ?1
