SELECT state, count(*) FROM failure_group WHERE count > 0 GROUP BY state
