SELECT seq FROM event_identity WHERE contact_id = ?1
