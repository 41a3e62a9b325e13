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
