UPDATE tenant_key SET wrapped = ?3 WHERE tenant = ?1 AND version = ?2
