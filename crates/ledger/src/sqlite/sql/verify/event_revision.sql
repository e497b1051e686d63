SELECT 'event ' || e.ord || ' was accepted under the revision ' || e.revision || ', which is not kept'
  FROM event e
 WHERE e.ord > ?1 AND e.ord <= ?2 AND NOT EXISTS (SELECT 1 FROM revision r WHERE r.hash = e.revision)
 LIMIT 1
