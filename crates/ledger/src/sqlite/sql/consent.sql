SELECT granted FROM consent WHERE contact = ?1 AND purpose = ?2
