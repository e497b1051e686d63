SELECT 'event ' || e.seq || ' was accepted under the revision ' || e.revision || ', which is not kept'
  FROM event e
 WHERE e.seq > ?1 AND e.seq <= ?2 AND NOT EXISTS (SELECT 1 FROM revision r WHERE r.hash = e.revision)
 LIMIT 1
