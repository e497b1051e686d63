SELECT 'the effect `' || f.step_id || '` of job_' || f.job || ' was sent again after try ' || a.n || ', though it was not read back twice'
  FROM effect f
  JOIN attempt a ON a.job = f.job AND a.step_id = f.step_id AND a.kind = 'call' AND a.outcome IN ('unsure', 'interrupted')
 WHERE f.job > ?1 AND f.job <= ?2 AND f.class = 'verifiable'
   AND EXISTS (SELECT 1 FROM attempt b WHERE b.job = a.job AND b.step_id = a.step_id AND b.kind = 'call' AND b.n > a.n)
   AND (SELECT count(*) FROM attempt r WHERE r.job = a.job AND r.n = a.n AND r.step_id = a.step_id AND r.kind = 'read' AND r.outcome = 'absent') < 2
   AND NOT EXISTS (SELECT 1 FROM audit u WHERE u.action = 'resolve' AND u.object = 'job_' || f.job)
 LIMIT 1
