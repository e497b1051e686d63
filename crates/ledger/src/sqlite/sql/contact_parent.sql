SELECT merged_into FROM contact WHERE id = ?1
