SELECT 'the events ' || min(ord) || ' and ' || max(ord) || ' have one name' FROM event GROUP BY id HAVING count(*) > 1 LIMIT 1
