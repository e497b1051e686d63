SELECT id FROM contact WHERE conflicts > 0 AND (?1 IS NULL OR id < ?1) ORDER BY id DESC LIMIT ?2
