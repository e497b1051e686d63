SELECT 'the effect `' || f.step_id || '` of job_' || f.job || ' is ' || f.state || ', and the job is not under way'
  FROM effect f JOIN job j ON j.id = f.job
 WHERE f.job > ?1 AND f.job <= ?2 AND f.state = 'intent' AND j.state <> 1
 LIMIT 1
