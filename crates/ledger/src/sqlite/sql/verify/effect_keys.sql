SELECT f.job, f.step_id, f.key, j.worker, e.id
  FROM effect f JOIN job j ON j.id = f.job JOIN event e ON e.seq = j.seq
 WHERE f.job > ?1 AND f.job <= ?2
