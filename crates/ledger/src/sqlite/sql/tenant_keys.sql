SELECT version, wrapped, created_at FROM tenant_key WHERE tenant = ?1 ORDER BY version
