SELECT seq FROM event_identity WHERE contact_key = ?1 UNION SELECT seq FROM event_revision WHERE contact_key = ?1
