UPDATE event SET body_mac = ?2 WHERE seq = ?1 AND body_mac IS NOT NULL
