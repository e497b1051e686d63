SELECT id, channel, at, actor, reason, label FROM suppression WHERE (?1 IS NULL OR id < ?1) ORDER BY id DESC LIMIT ?2
