SELECT contact FROM job WHERE id = ?1
