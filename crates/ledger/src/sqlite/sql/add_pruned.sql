INSERT INTO pruned_total (kind, count) VALUES (?1, ?2) ON CONFLICT (kind) DO UPDATE SET count = count + excluded.count
