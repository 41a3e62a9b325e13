-- Version 7 in one piece; later versions are in migrations/.

CREATE SCHEMA IF NOT EXISTS recollect;

CREATE TABLE recollect.schema_versions (
    version    integer NOT NULL,
    phase      text NOT NULL CHECK (phase IN ('pre', 'post')),
    name       text NOT NULL,
    applied_at double precision NOT NULL,
    PRIMARY KEY (version, phase)
);

CREATE TABLE recollect.spaces (
    space_id    uuid NOT NULL,
    name        text NOT NULL,
    jobs_due_at double precision,
    PRIMARY KEY (space_id)
) WITH (fillfactor = 70);
CREATE INDEX spaces_due ON recollect.spaces (jobs_due_at) WHERE jobs_due_at IS NOT NULL;

-- One row a space: the next numbers, the statistics of the index, how far it is packed.
-- Writers of a space take turns by locking it, so numbers are committed in their order.
CREATE TABLE recollect.counters (
    space_id      uuid NOT NULL,
    next_sequence bigint NOT NULL DEFAULT 1,
    next_passage  bigint NOT NULL DEFAULT 1,
    next_embedder integer NOT NULL DEFAULT 1,
    next_job      bigint NOT NULL DEFAULT 1,
    documents     bigint NOT NULL DEFAULT 0,
    total_length  bigint NOT NULL DEFAULT 0,
    packed_to     bigint NOT NULL DEFAULT 0,
    index_epoch   bigint NOT NULL DEFAULT 0,
    next_fact     bigint NOT NULL DEFAULT 1,
    facts_revision bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (space_id)
) WITH (fillfactor = 50);

CREATE TABLE recollect.segments (
    space_id     uuid NOT NULL,
    sequence     bigint NOT NULL,
    id           text COLLATE "C" NOT NULL,
    session      text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    message_id   text COLLATE "C" NOT NULL,
    role         text NOT NULL,
    body         text NOT NULL,
    tokens       bigint NOT NULL,
    said_at      double precision NOT NULL,
    source       text NOT NULL,
    trust        text NOT NULL,
    noise        text,
    tool         text,
    tags         text,
    origin       text,
    foreign_line text,
    cold         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (space_id, sequence),
    UNIQUE (space_id, id)
);
CREATE INDEX segments_session ON recollect.segments (space_id, session, sequence);
CREATE INDEX segments_message ON recollect.segments (space_id, message_id);
ALTER TABLE recollect.segments
    ALTER COLUMN body SET STATISTICS 0,
    ALTER COLUMN noise SET STATISTICS 0,
    ALTER COLUMN tool SET STATISTICS 0,
    ALTER COLUMN tags SET STATISTICS 0,
    ALTER COLUMN origin SET STATISTICS 0,
    ALTER COLUMN foreign_line SET STATISTICS 0;

-- passage_no is a passage's number in the index; it gets a new one when it is indexed anew.
CREATE TABLE recollect.passages (
    space_id   uuid NOT NULL,
    passage_no bigint NOT NULL,
    sequence   bigint NOT NULL,
    ordinal    integer NOT NULL,
    start_char integer NOT NULL,
    end_char   integer NOT NULL,
    said_at    double precision NOT NULL,
    embedded   boolean NOT NULL,
    cold       boolean NOT NULL DEFAULT false,
    PRIMARY KEY (space_id, passage_no),
    UNIQUE (space_id, sequence, ordinal)
);

-- The words of a passage as sorted 32-bit hashes, each with its count.
CREATE TABLE recollect.passage_terms (
    space_id   uuid NOT NULL,
    passage_no bigint NOT NULL,
    cold       boolean NOT NULL DEFAULT false,
    length     integer NOT NULL,
    terms      bytea STORAGE EXTERNAL NOT NULL,
    counts     bytea STORAGE EXTERNAL NOT NULL,
    PRIMARY KEY (space_id, passage_no)
) WITH (toast_tuple_target = 8160);
CREATE INDEX passage_terms_cold ON recollect.passage_terms (space_id, passage_no) WHERE cold;
ALTER TABLE recollect.passage_terms
    ALTER COLUMN terms SET STATISTICS 0,
    ALTER COLUMN counts SET STATISTICS 0;

-- The inverted index: a run covers a range of at most 65,536 passage numbers; its postings stand
-- in blocks by the upper bits of the term. A passage in `dead` has left the index meanwhile.
CREATE TABLE recollect.runs (
    space_id      uuid NOT NULL,
    run           bigint NOT NULL,
    first_passage bigint NOT NULL,
    last_passage  bigint NOT NULL,
    passages      integer NOT NULL,
    shift         integer NOT NULL,
    dead          bytea,
    PRIMARY KEY (space_id, run)
);
ALTER TABLE recollect.runs ALTER COLUMN dead SET STATISTICS 0;

CREATE TABLE recollect.postings (
    space_id   uuid NOT NULL,
    run        bigint NOT NULL,
    bucket     integer NOT NULL,
    part       integer NOT NULL,
    first_term bigint NOT NULL,
    last_term  bigint NOT NULL,
    block      bytea STORAGE PLAIN NOT NULL,
    PRIMARY KEY (space_id, run, bucket, part)
);
ALTER TABLE recollect.postings
    ALTER COLUMN block SET STATISTICS 0,
    ALTER COLUMN first_term SET STATISTICS 0,
    ALTER COLUMN last_term SET STATISTICS 0;

-- half: it stores vectors in 16 bits. signed: it has so many that a search needs their signs.
CREATE TABLE recollect.embedders (
    space_id    uuid NOT NULL,
    embedder_no integer NOT NULL,
    name        text COLLATE "C" NOT NULL,
    dimensions  integer NOT NULL,
    vectors     bigint NOT NULL DEFAULT 0,
    complete_to bigint NOT NULL DEFAULT 0,
    half        boolean NOT NULL DEFAULT true,
    signed      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (space_id, embedder_no),
    UNIQUE (space_id, name)
);

-- Vectors whose numbers 16 bits hold exactly are stored in half, others, as imports have them, in v
-- as float32. length is that of the vector. Up to 2,000 dimensions it is in its row
-- (toast_tuple_target); beyond that it does not fit a page and is stored out of line, unpacked.
CREATE TABLE recollect.vectors (
    space_id    uuid NOT NULL,
    embedder_no integer NOT NULL,
    passage_no  bigint NOT NULL,
    cold        boolean NOT NULL DEFAULT false,
    v           vector STORAGE EXTERNAL,
    half        halfvec,
    length      real,
    PRIMARY KEY (space_id, embedder_no, passage_no)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recollect.vectors
    ALTER COLUMN v SET STATISTICS 0,
    ALTER COLUMN half SET STATISTICS 0;

-- The signs of vectors, some hundred passages a block: a large space is searched in them
-- first. A block stands in its row.
CREATE TABLE recollect.sign_blocks (
    space_id    uuid NOT NULL,
    embedder_no integer NOT NULL,
    block_no    integer NOT NULL,
    block       bytea STORAGE PLAIN NOT NULL,
    PRIMARY KEY (space_id, embedder_no, block_no)
);
ALTER TABLE recollect.sign_blocks ALTER COLUMN block SET STATISTICS 0;

-- A fact that is replaced gets another number, and none is given twice: what was made of the old
-- fact is never taken for the new one's.
CREATE TABLE recollect.facts (
    space_id      uuid NOT NULL,
    id            text COLLATE "C" NOT NULL,
    type          text NOT NULL,
    content       text NOT NULL,
    context       text NOT NULL,
    at            double precision NOT NULL,
    superseded_by text COLLATE "C",
    sources       text[] NOT NULL,
    trust         text NOT NULL,
    words         text[] NOT NULL,
    foreign_line  text,
    fact_no       bigint NOT NULL,
    valid_to      double precision,
    recorded_at   double precision,
    subject       text NOT NULL,
    attribute     text NOT NULL,
    evidence      text,
    made_by       text NOT NULL,
    change        text,
    session       text COLLATE "C",
    pinned        boolean NOT NULL,
    joint         boolean NOT NULL,
    PRIMARY KEY (space_id, id)
);
ALTER TABLE recollect.facts
    ALTER COLUMN content SET STATISTICS 0,
    ALTER COLUMN context SET STATISTICS 0,
    ALTER COLUMN words SET STATISTICS 0,
    ALTER COLUMN foreign_line SET STATISTICS 0,
    ALTER COLUMN subject SET STATISTICS 0,
    ALTER COLUMN attribute SET STATISTICS 0,
    ALTER COLUMN evidence SET STATISTICS 0;
CREATE UNIQUE INDEX facts_number ON recollect.facts (space_id, fact_no);
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
    v           vector STORAGE EXTERNAL,
    half        halfvec,
    PRIMARY KEY (space_id, embedder_no, fact_no)
) WITH (toast_tuple_target = 8160);
ALTER TABLE recollect.fact_vectors
    ALTER COLUMN v SET STATISTICS 0,
    ALTER COLUMN half SET STATISTICS 0;

-- How far sessions were read for facts, by a mark of their name, which may be forgotten.
CREATE TABLE recollect.extracted (
    space_id uuid NOT NULL,
    session  text COLLATE "C" NOT NULL,
    sequence bigint NOT NULL,
    PRIMARY KEY (space_id, session)
);

CREATE TABLE recollect.sessions (
    space_id    uuid NOT NULL,
    session     text COLLATE "C" NOT NULL,
    turn        bigint NOT NULL,
    path_length integer NOT NULL,
    state       bytea NOT NULL,
    PRIMARY KEY (space_id, session)
);
ALTER TABLE recollect.sessions ALTER COLUMN state SET STATISTICS 0;

-- The path of a session in chunks, so that a turn writes only its end.
CREATE TABLE recollect.session_paths (
    space_id uuid NOT NULL,
    session  text COLLATE "C" NOT NULL,
    chunk    integer NOT NULL,
    entries  bytea NOT NULL,
    PRIMARY KEY (space_id, session, chunk)
);
ALTER TABLE recollect.session_paths ALTER COLUMN entries SET STATISTICS 0;

-- Whom a session's state quotes, in chunks of 16 bytes an identity.
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

-- What must not come back: identities, wherever they are said, single segments by their id,
-- pieces of the ledger by their hash, and compactions by their mark.
CREATE TABLE recollect.tombstones (
    space_id   uuid NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    PRIMARY KEY (space_id, message_id)
);

-- Ids of segments that were forgotten: what rests on them alone is not written either.
CREATE TABLE recollect.forgotten_segments (
    space_id   uuid NOT NULL,
    id         text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (space_id, id)
);
CREATE INDEX forgotten_segments_message ON recollect.forgotten_segments (space_id, message_id);

CREATE TABLE recollect.jobs (
    space_id         uuid NOT NULL,
    job_no           bigint NOT NULL,
    kind             text NOT NULL,
    key              text NOT NULL,
    payload          bytea NOT NULL,
    about            text[] NOT NULL,
    cost_tokens      bigint NOT NULL,
    run_at           double precision NOT NULL,
    state            text NOT NULL CHECK (state IN ('waiting', 'leased', 'dead')),
    attempts         integer NOT NULL DEFAULT 0,
    lease_token      text,
    lease_expires_at double precision,
    reason           text,
    PRIMARY KEY (space_id, job_no)
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX jobs_waiting ON recollect.jobs (space_id, kind, md5(key))
    WHERE state = 'waiting';
CREATE INDEX jobs_by_time ON recollect.jobs (space_id, state, run_at);
ALTER TABLE recollect.jobs
    ALTER COLUMN payload SET STATISTICS 0,
    ALTER COLUMN key SET STATISTICS 0,
    ALTER COLUMN reason SET STATISTICS 0;

CREATE TABLE recollect.job_pauses (
    space_id uuid NOT NULL,
    kind     text NOT NULL,
    PRIMARY KEY (space_id, kind)
);

CREATE TABLE recollect.job_budgets (
    space_id uuid NOT NULL,
    day      text NOT NULL,
    tokens   bigint NOT NULL,
    PRIMARY KEY (space_id, day)
);

-- What was asked of models, by day and purpose: calls and tokens, nothing that was said.
CREATE TABLE recollect.model_use (
    space_id      uuid NOT NULL,
    day           text NOT NULL,
    purpose       text NOT NULL,
    calls         bigint NOT NULL,
    input_tokens  bigint NOT NULL,
    output_tokens bigint NOT NULL,
    PRIMARY KEY (space_id, day, purpose)
);

CREATE TABLE recollect.pieces (
    space_id uuid NOT NULL,
    hash     text COLLATE "C" NOT NULL,
    kind     text NOT NULL,
    body     bytea NOT NULL,
    about    text[] NOT NULL,
    exact    boolean NOT NULL,
    PRIMARY KEY (space_id, hash)
);
ALTER TABLE recollect.pieces ALTER COLUMN body SET STATISTICS 0;

CREATE TABLE recollect.turns (
    space_id    uuid NOT NULL,
    session     text COLLATE "C" NOT NULL,
    number      bigint NOT NULL,
    at          double precision NOT NULL,
    format      text NOT NULL,
    model       text,
    system_hash text,
    tools_hash  text,
    rest_hash   text,
    edits_hash  text,
    report_hash text,
    kept_rows   bigint NOT NULL,
    row_hashes  text[] NOT NULL,
    outcome_hashes text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (space_id, session, number)
);
CREATE INDEX turns_time ON recollect.turns (space_id, at);

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

-- Tables that a space removed something from, so that a scrub rewrites these alone.
CREATE TABLE recollect.unscrubbed (
    space_id   uuid NOT NULL,
    table_name text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    PRIMARY KEY (space_id, table_name)
);

-- When a table was last rewritten, for all spaces. On Citus it stays on the coordinator.
CREATE TABLE recollect.rewritten (
    table_name text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    PRIMARY KEY (table_name)
);

-- Row-level security on every table of spaces, for its owner too: a query that forgets its space
-- filter finds nothing of another space, and without app.space_id nothing at all.
DO $$
DECLARE
    named text;
BEGIN
    FOR named IN
        SELECT c.relname FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'space_id'
        WHERE c.relnamespace = 'recollect'::regnamespace AND c.relkind = 'r'
        ORDER BY c.relname
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

-- A worker asks which spaces have work: names and times, no content, and only when it says so.
CREATE POLICY due_work ON recollect.spaces FOR SELECT
    USING (current_setting('app.worker', true) = 'on');

-- Rows that are written again and again: vacuum takes the old versions away sooner.
ALTER TABLE recollect.counters SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE recollect.sign_blocks SET (autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE recollect.jobs SET (autovacuum_vacuum_scale_factor = 0.05);

-- Which spaces of one shard have work, as a JSON array of times and names: asked shard by shard where
-- a node of Citus is away. It sees no more than a worker does.
CREATE OR REPLACE FUNCTION recollect.due_spaces(shard text, due double precision, most integer)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    PERFORM set_config('app.worker', 'on', true);
    EXECUTE format(
        'SELECT json_agg(json_build_array(jobs_due_at, name))::text FROM ('
        'SELECT jobs_due_at, name FROM %s WHERE jobs_due_at <= $1 ORDER BY jobs_due_at LIMIT $2'
        ') AS waiting', shard::regclass) INTO found USING due, most;
    RETURN found;
END
$$;

-- Tenants above spaces, for `recollect serve`. A tenant's space is one like any other, named after
-- both; these tables know who may ask for it. tenant_id leads every key but the tenants' names, so
-- that on Citus all but recollect.tenants distribute by it; tenants is a reference table.

CREATE TABLE recollect.tenants (
    tenant_id           uuid NOT NULL,
    name                text COLLATE "C" NOT NULL,
    created_at          double precision NOT NULL,
    requests_per_minute bigint,
    tokens_per_day      bigint,
    PRIMARY KEY (tenant_id),
    UNIQUE (name)
);

-- Of a key only a hash is kept; key_id is the part of it that people may see.
CREATE TABLE recollect.api_keys (
    tenant_id  uuid NOT NULL,
    key_id     text COLLATE "C" NOT NULL,
    name       text NOT NULL,
    hash       bytea NOT NULL,
    scopes     text[] NOT NULL,
    created_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision,
    PRIMARY KEY (tenant_id, key_id)
);

CREATE TABLE recollect.tenant_spaces (
    tenant_id  uuid NOT NULL,
    name       text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    PRIMARY KEY (tenant_id, name)
);

-- What was answered to a request with an Idempotency-Key: numbers and ids, nothing that was said.
CREATE TABLE recollect.idempotency_keys (
    tenant_id        uuid NOT NULL,
    key_hash         bytea NOT NULL,
    request_hash     bytea NOT NULL,
    lease_token      text,
    lease_expires_at double precision,
    expires_at       double precision NOT NULL,
    status           integer,
    answer           bytea,
    PRIMARY KEY (tenant_id, key_hash)
) WITH (fillfactor = 70);
CREATE INDEX idempotency_keys_expiry ON recollect.idempotency_keys (tenant_id, expires_at);

-- How much of a budget is spent, by the number of its period: minutes or days since the epoch.
CREATE TABLE recollect.tenant_usage (
    tenant_id uuid NOT NULL,
    budget    text COLLATE "C" NOT NULL,
    period    bigint NOT NULL,
    used      bigint NOT NULL,
    PRIMARY KEY (tenant_id, budget, period)
) WITH (fillfactor = 70);

-- Administrative acts: who did what to what, and when. It outlives its tenant.
CREATE TABLE recollect.audit_log (
    tenant_id uuid NOT NULL,
    at        double precision NOT NULL,
    id        text COLLATE "C" NOT NULL,
    actor     text NOT NULL,
    act       text NOT NULL,
    subject   text NOT NULL,
    PRIMARY KEY (tenant_id, at, id)
);

DO $$
DECLARE
    named text;
BEGIN
    FOREACH named IN ARRAY ARRAY[
        'tenants', 'api_keys', 'tenant_spaces', 'idempotency_keys', 'tenant_usage', 'audit_log'
    ]
    LOOP
        EXECUTE format('ALTER TABLE recollect.%I ENABLE ROW LEVEL SECURITY', named);
        EXECUTE format('ALTER TABLE recollect.%I FORCE ROW LEVEL SECURITY', named);
        EXECUTE format(
            $policy$
            CREATE POLICY one_tenant ON recollect.%I
            USING (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
            WITH CHECK (tenant_id = nullif(current_setting('app.tenant_id', true), '')::uuid)
            $policy$,
            named);
    END LOOP;
END
$$;

-- Who runs the service looks tenants up by name, and reads the log, and only when it says so.
CREATE POLICY operator ON recollect.tenants FOR SELECT
    USING (current_setting('app.operator', true) = 'on');
CREATE POLICY operator ON recollect.audit_log FOR SELECT
    USING (current_setting('app.operator', true) = 'on');
