SELECT id, worker, class, code, state, count, total, first_at, last_at, last_job, changed_at, actor, reason FROM failure_group WHERE worker = ?1 AND class = ?2 AND code = ?3
