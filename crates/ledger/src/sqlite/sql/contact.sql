SELECT id, merged_into, contact_key, created_at, sealed FROM contact WHERE id = ?1
