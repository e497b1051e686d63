SELECT job FROM straggler WHERE due_at < ?1
