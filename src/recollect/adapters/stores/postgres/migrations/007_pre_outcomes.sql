-- A turn names the records that the outcomes of its messages are read from.

ALTER TABLE recollect.turns ADD COLUMN outcome_hashes text[] NOT NULL DEFAULT '{}';
