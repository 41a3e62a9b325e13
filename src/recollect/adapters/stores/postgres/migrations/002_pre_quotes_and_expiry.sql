-- Whom a session's state quotes stands in session_quotes alone: code of this version does not write
-- sessions.about, code of version 1 still may. Turns that expire are found without reading the rest.

ALTER TABLE recollect.sessions ALTER COLUMN about SET DEFAULT '{}';
CREATE INDEX IF NOT EXISTS turns_time ON recollect.turns (space_id, at);
