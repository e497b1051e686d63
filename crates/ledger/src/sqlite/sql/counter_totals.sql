SELECT measure, first, second, total FROM counter ORDER BY measure, first, second
