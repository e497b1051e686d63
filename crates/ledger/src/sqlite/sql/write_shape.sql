UPDATE payload_shape SET version = ?2, notices = ?3, sealed = ?4 WHERE id = ?1
