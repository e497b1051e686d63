SELECT flow, state, count(*) FROM response_clock GROUP BY flow, state ORDER BY flow, state
