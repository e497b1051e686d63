SELECT contact, state, attempts_total, term, worker, queue, revision, destination, dead_letter_queue, entity FROM job WHERE id = ?1
