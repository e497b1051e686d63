DELETE FROM policy_use WHERE (policy, channel, contact, effect) IN (SELECT policy, channel, contact, effect FROM policy_use WHERE until <= ?1 LIMIT ?2)
