INSERT INTO audit (at, actor, action, object, detail) VALUES (?1, ?2, ?3, ?4, ?5)
