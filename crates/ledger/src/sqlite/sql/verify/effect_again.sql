SELECT 'the effect `' || f.step_id || '` of job_' || f.job || ' was applied at try ' || a.n || ' and called again at try ' || b.n
  FROM effect f
  JOIN attempt a ON a.job = f.job AND a.step_id = f.step_id AND a.kind = 'call' AND a.outcome = 'done'
  JOIN attempt b ON b.job = f.job AND b.step_id = f.step_id AND b.kind = 'call' AND b.n > a.n
 WHERE f.job > ?1 AND f.job <= ?2
   -- A natural effect is sent again if its record was read back and differs.
   AND NOT (f.class = 'natural' AND EXISTS (SELECT 1 FROM attempt r WHERE r.job = f.job AND r.step_id = f.step_id AND r.kind = 'read' AND r.outcome = 'absent' AND r.n >= a.n AND r.n < b.n))
 LIMIT 1
