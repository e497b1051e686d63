UPDATE contact_key SET wrapped = ?2 WHERE id = ?1
