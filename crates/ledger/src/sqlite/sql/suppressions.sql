SELECT id, channel, at, actor, reason, label FROM suppression ORDER BY at DESC, id DESC LIMIT ?1
