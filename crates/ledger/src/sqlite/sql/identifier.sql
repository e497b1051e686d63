SELECT contact, digest FROM identifier WHERE id = ?1
