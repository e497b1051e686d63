SELECT j.id FROM job j WHERE j.id > ?
