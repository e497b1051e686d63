INSERT INTO lateness (source, kind, bucket, count) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (source, kind, bucket) DO UPDATE SET count = count + excluded.count
