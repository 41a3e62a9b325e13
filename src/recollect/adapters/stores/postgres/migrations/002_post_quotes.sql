-- No code of version 1 is left that writes it.

ALTER TABLE recollect.sessions DROP COLUMN about;
