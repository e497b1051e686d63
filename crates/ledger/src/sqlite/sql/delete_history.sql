DELETE FROM history WHERE step = ?1 AND measure = ?2 AND at < ?3
