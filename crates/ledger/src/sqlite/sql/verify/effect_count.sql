SELECT 'job_' || j.id || ' counts ' || j.effect_rows || ' effects, and has ' || (SELECT count(*) FROM effect f WHERE f.job = j.id)
  FROM job j
 WHERE j.id > ?1 AND j.id <= ?2 AND j.effect_rows <> (SELECT count(*) FROM effect f WHERE f.job = j.id)
 LIMIT 1
