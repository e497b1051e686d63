SELECT e.id, j.id - e.first_job FROM job j JOIN event e ON e.seq = j.seq WHERE j.id = ?1
