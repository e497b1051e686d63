SELECT run, level, entries, first_seq, last_seq FROM key_run ORDER BY run
