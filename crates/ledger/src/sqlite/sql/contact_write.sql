SELECT sealed FROM contact_write WHERE contact = ?1 AND slot = ?2
