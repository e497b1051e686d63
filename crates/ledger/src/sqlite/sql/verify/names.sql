SELECT 'the events ' || min(seq) || ' and ' || max(seq) || ' have one name' FROM event GROUP BY id HAVING count(*) > 1 LIMIT 1
