DELETE FROM job_total WHERE count = 0
