-- Facts with their history, evidence and place, found by words and vectors. A fact has a number
-- that is never given again: one that is replaced gets another, so that what was made of the old
-- one is never taken for its own. Rows of older code have none; they get it, and their words, when
-- facts of the space are next looked for or written. Words stand as 64-bit numbers made of them.

ALTER TABLE recollect.counters
    ADD COLUMN next_fact      bigint NOT NULL DEFAULT 1,
    ADD COLUMN facts_revision bigint NOT NULL DEFAULT 0;

ALTER TABLE recollect.facts
    ADD COLUMN fact_no     bigint,
    ADD COLUMN valid_to    double precision,
    ADD COLUMN recorded_at double precision,
    ADD COLUMN subject     text NOT NULL DEFAULT '',
    ADD COLUMN attribute   text NOT NULL DEFAULT '',
    ADD COLUMN evidence    text,
    ADD COLUMN made_by     text NOT NULL DEFAULT 'import',
    ADD COLUMN change      text,
    ADD COLUMN session     text COLLATE "C",
    ADD COLUMN pinned      boolean NOT NULL DEFAULT false,
    ADD COLUMN joint       boolean NOT NULL DEFAULT false;
ALTER TABLE recollect.facts
    ALTER COLUMN subject SET STATISTICS 0,
    ALTER COLUMN attribute SET STATISTICS 0,
    ALTER COLUMN evidence SET STATISTICS 0;
CREATE UNIQUE INDEX facts_number ON recollect.facts (space_id, fact_no);
CREATE INDEX facts_unnumbered ON recollect.facts (space_id) WHERE fact_no IS NULL;
CREATE INDEX facts_current ON recollect.facts (space_id, session, fact_no)
    WHERE superseded_by IS NULL AND valid_to IS NULL;
CREATE INDEX facts_pinned ON recollect.facts (space_id, fact_no)
    WHERE pinned AND superseded_by IS NULL AND valid_to IS NULL;

-- Of current facts only, as are their vectors.
CREATE TABLE recollect.fact_terms (
    space_id uuid NOT NULL,
    term     bigint NOT NULL,
    fact_no  bigint NOT NULL,
    PRIMARY KEY (space_id, term, fact_no)
);
CREATE INDEX fact_terms_fact ON recollect.fact_terms (space_id, fact_no);
ALTER TABLE recollect.fact_terms ALTER COLUMN term SET STATISTICS 0;

CREATE TABLE recollect.fact_vectors (
    space_id    uuid NOT NULL,
    embedder_no integer NOT NULL,
    fact_no     bigint NOT NULL,
    v           vector STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (space_id, embedder_no, fact_no)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recollect.fact_vectors ALTER COLUMN v SET STATISTICS 0;

-- How far sessions were read for facts, by a mark of their name, which may be forgotten.
CREATE TABLE recollect.extracted (
    space_id uuid NOT NULL,
    session  text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (space_id, session)
);

DO $$
DECLARE
    named text;
BEGIN
    FOREACH named IN ARRAY ARRAY['fact_terms', 'fact_vectors', 'extracted']
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
