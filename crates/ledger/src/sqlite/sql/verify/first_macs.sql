SELECT (SELECT value FROM meta WHERE name = 'first_mac_job'), (SELECT value FROM meta WHERE name = 'first_mac_seq')
