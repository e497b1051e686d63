-- An edit may have moved an event to another contact since: its row decides.
SELECT seq FROM event WHERE contact_id = ?1 AND seq IN (
    SELECT seq FROM event_identity WHERE contact_id = ?1 UNION SELECT seq FROM event_revision WHERE contact_id = ?1
)
