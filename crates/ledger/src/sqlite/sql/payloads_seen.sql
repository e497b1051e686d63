SELECT value FROM meta WHERE name = 'payloads_seen'
