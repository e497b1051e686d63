-- Without quarantined events that wait for a replay: their time is the greatest.
SELECT count(*) FROM waiting_event WHERE expires_at < 9223372036854775807
