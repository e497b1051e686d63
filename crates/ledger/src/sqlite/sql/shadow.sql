SELECT hash, files, started_at, actor, reason, active, seen, sealed FROM shadow
