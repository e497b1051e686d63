INSERT INTO revision (hash, at, actor, files) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (hash) DO NOTHING
