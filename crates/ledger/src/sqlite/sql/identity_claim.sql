SELECT record_ref.job,
       job.state < 8 AND EXISTS (
         SELECT 1 FROM effect WHERE effect.job = job.id AND effect.state IN ('intent', 'unknown')
       )
FROM record_ref JOIN job ON job.id = record_ref.job
WHERE record_ref.id = ?1 AND record_ref.digest = ?2
