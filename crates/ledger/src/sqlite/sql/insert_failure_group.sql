INSERT INTO failure_group (worker, class, code, state, count, total, first_at, last_at, last_job, changed_at, actor, reason)
VALUES (?1, ?2, ?3, 'open', 1, 1, ?4, ?4, ?5, ?4, '', '')
