SELECT job.seq FROM record_ref JOIN job ON job.id = record_ref.job WHERE record_ref.id = ?1 AND record_ref.digest = ?2
