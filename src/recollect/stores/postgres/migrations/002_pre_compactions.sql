-- Compactions, and whom the states of sessions quote. A state whose past was cut stands for
-- thousands of messages and is written every turn: identities are kept at 16 bytes each, in chunks
-- of which a turn writes those that changed. What older code wrote into sessions.about stays there
-- until the session is written again. Ids are no content, but a sample of them is of no use.

CREATE TABLE recollect.session_quotes (
    space_id uuid NOT NULL,
    session  text COLLATE "C" NOT NULL,
    chunk    integer NOT NULL,
    digest   bytea,
    ids      uuid[] STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (space_id, session, chunk)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recollect.session_quotes
    ALTER COLUMN digest SET STATISTICS 0,
    ALTER COLUMN ids SET STATISTICS 0;

-- named holds the identities as they are called, where one is no number of 128 bits.
CREATE TABLE recollect.compactions (
    space_id uuid NOT NULL,
    session  text COLLATE "C" NOT NULL,
    number   bigint NOT NULL,
    at       double precision NOT NULL,
    about    uuid[] STORAGE EXTERNAL NOT NULL,
    named    text[],
    body     bytea NOT NULL,
    PRIMARY KEY (space_id, session, number)
);
ALTER TABLE recollect.compactions
    ALTER COLUMN about SET STATISTICS 0,
    ALTER COLUMN named SET STATISTICS 0,
    ALTER COLUMN body SET STATISTICS 0;

DO $$
DECLARE
    named text;
BEGIN
    FOREACH named IN ARRAY ARRAY['compactions', 'session_quotes']
    LOOP
        EXECUTE format('ALTER TABLE recollect.%I ENABLE ROW LEVEL SECURITY', named);
        EXECUTE format('ALTER TABLE recollect.%I FORCE ROW LEVEL SECURITY', named);
        EXECUTE format(
            $policy$
            CREATE POLICY one_space ON recollect.%I
            USING (space_id = nullif(current_setting('app.space_id', true), '')::uuid)
            WITH CHECK (space_id = nullif(current_setting('app.space_id', true), '')::uuid)
            $policy$,
            named);
    END LOOP;
END
$$;
