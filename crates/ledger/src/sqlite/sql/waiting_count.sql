SELECT count(*) FROM waiting_event
