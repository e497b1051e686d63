UPDATE contact SET merged_into = ?2 WHERE id = ?1
