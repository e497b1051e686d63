SELECT seq, key, id FROM event WHERE seq > ?1 ORDER BY seq
