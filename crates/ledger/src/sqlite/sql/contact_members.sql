SELECT id FROM contact WHERE merged_into = ?1 ORDER BY id
