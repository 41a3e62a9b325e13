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

-- Tables that a space removed something from, so that a scrub rewrites these alone.
CREATE TABLE recollect.unscrubbed (
    space_id   uuid NOT NULL,
    table_name text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    PRIMARY KEY (space_id, table_name)
);
ALTER TABLE recollect.unscrubbed ENABLE ROW LEVEL SECURITY;
ALTER TABLE recollect.unscrubbed FORCE ROW LEVEL SECURITY;
CREATE POLICY one_space ON recollect.unscrubbed
    USING (space_id = nullif(current_setting('app.space_id', true), '')::uuid)
    WITH CHECK (space_id = nullif(current_setting('app.space_id', true), '')::uuid);

-- When a table was last rewritten, for all spaces. On Citus it stays on the coordinator.
CREATE TABLE recollect.rewritten (
    table_name text COLLATE "C" NOT NULL,
    at         double precision NOT NULL,
    PRIMARY KEY (table_name)
);
