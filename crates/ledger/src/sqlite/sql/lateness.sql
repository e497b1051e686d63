SELECT kind, bucket, count FROM lateness WHERE source = ?1
