-- Zeroes in the row of a job that has just come in, and nothing once it was settled: what is written then finds its room on the page. Without
-- it every page of jobs, full as it is from the start, would be split while its jobs end.
ALTER TABLE job ADD COLUMN room BLOB;
