INSERT INTO key_page (id, entries) VALUES (?1, ?2)
