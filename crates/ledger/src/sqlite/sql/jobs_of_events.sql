SELECT job.id, job.state FROM event JOIN job ON job.id >= event.first_job AND job.id < event.first_job + event.jobs
WHERE event.seq IN (SELECT value FROM json_each(?1))
