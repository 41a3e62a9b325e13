-- Vectors whose numbers 16 bits hold exactly are kept so, in half the room; length is that of the
-- vector. Others, as imports have them, stay in v: what is exported is what came. Code of this
-- version reads both; it writes halves for embedders that say so, which none does while older code runs.

ALTER TABLE recollect.vectors ADD COLUMN half halfvec, ADD COLUMN length real;
ALTER TABLE recollect.vectors ALTER COLUMN v DROP NOT NULL;
ALTER TABLE recollect.vectors ALTER COLUMN half SET STATISTICS 0;
ALTER TABLE recollect.fact_vectors ADD COLUMN half halfvec;
ALTER TABLE recollect.fact_vectors ALTER COLUMN v DROP NOT NULL;
ALTER TABLE recollect.fact_vectors ALTER COLUMN half SET STATISTICS 0;
ALTER TABLE recollect.embedders ADD COLUMN half boolean NOT NULL DEFAULT false;
