SELECT value FROM meta WHERE name = 'content_window_ms'
