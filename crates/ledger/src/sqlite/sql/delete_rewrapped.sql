DELETE FROM meta WHERE name = 'rewrapped'
