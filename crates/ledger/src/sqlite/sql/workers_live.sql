SELECT DISTINCT worker FROM job WHERE state < 8
