SELECT id FROM contact WHERE merged_into IS NULL AND (?1 IS NULL OR id < ?1) ORDER BY id DESC LIMIT ?2
