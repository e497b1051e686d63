SELECT seq, length(sealed) FROM event_body WHERE seq IN (SELECT value FROM json_each(?1))
