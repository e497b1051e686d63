SELECT at, points FROM history WHERE step = ?1 AND measure = ?2 AND at >= ?3 AND at < ?4 ORDER BY at LIMIT ?5
