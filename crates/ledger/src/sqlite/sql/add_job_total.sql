INSERT INTO job_total (state, worker, destination, dead_letter_queue, queue, revision, wait, count) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (state, worker, destination, dead_letter_queue, queue, revision, wait) DO UPDATE SET count = count + excluded.count
