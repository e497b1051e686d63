INSERT INTO policy_use (policy, channel, contact, effect, at, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (policy, channel, contact, effect) DO UPDATE SET until = max(until, excluded.until)
