SELECT measure, first, second, total - recorded FROM counter WHERE total > recorded
