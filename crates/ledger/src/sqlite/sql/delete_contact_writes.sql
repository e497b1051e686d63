DELETE FROM contact_write WHERE contact = ?1
