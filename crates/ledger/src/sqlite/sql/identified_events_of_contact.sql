SELECT seq FROM event_identity WHERE contact_id = ?1 UNION SELECT seq FROM event_revision WHERE contact_id = ?1
