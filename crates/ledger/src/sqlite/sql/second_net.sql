SELECT value FROM meta WHERE name = 'second_net_ms'
