-- Rows that are written again and again: vacuum takes the old versions away sooner. Needs no
-- change of code, so it may run after the deployment.

ALTER TABLE recollect.counters SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE recollect.sign_blocks SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE recollect.jobs SET (autovacuum_vacuum_scale_factor = 0.05);
