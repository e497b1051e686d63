DELETE FROM pause WHERE target = ?1
