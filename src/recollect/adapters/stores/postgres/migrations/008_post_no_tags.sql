-- An export computes topics and entities; no query read them.

ALTER TABLE recollect.segments DROP COLUMN tags;
