SELECT n, at, hash, actor, reason FROM configured WHERE (?1 IS NULL OR n < ?1) ORDER BY n DESC LIMIT ?2
