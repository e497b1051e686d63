SELECT 'on ' || day || ' the source ' || source || ' has ' || events || ' events, and ' || accepted || ' were counted as accepted'
  FROM (SELECT strftime('%Y-%m-%d', e.persisted_at / 1000, 'unixepoch') AS day, e.source AS source, count(*) AS events,
               coalesce((SELECT t.accepted FROM source_day_count t WHERE t.source = e.source AND t.day = strftime('%Y-%m-%d', e.persisted_at / 1000, 'unixepoch')), 0) AS accepted
          FROM event e GROUP BY 1, 2)
 WHERE events > accepted
 LIMIT 1
