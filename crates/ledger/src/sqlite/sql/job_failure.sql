SELECT failure ->> '$.class', failure ->> '$.code' FROM job WHERE id = ?1
