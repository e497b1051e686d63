SELECT seq, key, id, signed_content FROM event WHERE seq > ?1 ORDER BY seq
