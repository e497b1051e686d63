SELECT source, sum(notices) FROM payload_shape WHERE notices > 0 GROUP BY source ORDER BY source
