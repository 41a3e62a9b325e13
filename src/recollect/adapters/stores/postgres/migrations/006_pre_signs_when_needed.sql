-- Signs of vectors are kept once an embedder has so many that a search needs them. Embedders of
-- before have theirs.

ALTER TABLE recollect.embedders ADD COLUMN signed boolean NOT NULL DEFAULT true;
ALTER TABLE recollect.embedders ALTER COLUMN signed SET DEFAULT false;
