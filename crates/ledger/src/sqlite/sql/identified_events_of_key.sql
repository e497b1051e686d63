SELECT seq FROM event_identity WHERE contact_key = ?1
