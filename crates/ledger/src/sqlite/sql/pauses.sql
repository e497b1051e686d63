SELECT target, at, actor, reason FROM pause ORDER BY target
