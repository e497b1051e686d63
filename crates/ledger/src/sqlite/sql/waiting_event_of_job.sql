SELECT w.seq, e.contact FROM job j JOIN waiting_event w ON w.seq = j.seq JOIN event e ON e.seq = j.seq WHERE j.id = ?1
