SELECT run, level, entries, first_ord, last_ord FROM key_run ORDER BY run
