SELECT id, at, actor, action, object, detail FROM audit WHERE (?1 IS NULL OR id < ?1) ORDER BY id DESC LIMIT ?2
