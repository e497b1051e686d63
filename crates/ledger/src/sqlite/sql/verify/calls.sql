SELECT job, n, outcome FROM attempt WHERE kind = 'call' ORDER BY job, n, seq
