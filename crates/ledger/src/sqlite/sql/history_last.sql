SELECT term, minute FROM history_last
