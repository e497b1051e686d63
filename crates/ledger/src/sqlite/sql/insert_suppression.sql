INSERT INTO suppression (contact, channel, at, actor, reason) VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id
