INSERT INTO tenant_key (tenant, version, wrapped, created_at) VALUES (?1, ?2, ?3, ?4)
