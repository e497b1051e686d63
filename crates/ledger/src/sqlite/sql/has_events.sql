SELECT EXISTS (SELECT 1 FROM event WHERE seq >= ?1 AND seq <= ?2)
