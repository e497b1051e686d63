SELECT min(due_at) FROM straggler
