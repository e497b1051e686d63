UPDATE counter SET recorded = total WHERE total > recorded
