INSERT INTO job_total (state, worker, destination, dead_letter_queue, queue, revision, count) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (state, worker, destination, dead_letter_queue, queue, revision) DO UPDATE SET count = count + excluded.count
