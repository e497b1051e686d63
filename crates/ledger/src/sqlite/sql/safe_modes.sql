SELECT worker, at, until, actor, reason FROM safe_mode ORDER BY worker
