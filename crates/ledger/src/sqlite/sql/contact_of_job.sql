SELECT event.contact_id FROM job JOIN event ON event.seq = job.seq WHERE job.id = ?1
