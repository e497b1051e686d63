UPDATE job SET entity = ?2, mac = ?3 WHERE id = ?1
