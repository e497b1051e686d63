SELECT kind, count FROM pruned_total WHERE count > 0 ORDER BY kind
