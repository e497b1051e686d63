UPDATE event SET body_pruned = ?2 WHERE seq = ?1
