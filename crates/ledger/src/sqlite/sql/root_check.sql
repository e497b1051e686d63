SELECT value FROM meta WHERE name = 'root_check'
