-- A stand-in for Citus on one PostgreSQL: the catalogue and functions that we use, as Citus 13 has
-- them. It refuses what Citus refuses when a table is distributed, keeps the rows of each shard of spaces
-- and segments in a table of its own as workers do, and lets a test take a node away. It does not route queries.

CREATE SCHEMA citus;
CREATE TABLE citus.calls (id serial, call text);
CREATE TABLE citus.away (node text);
GRANT USAGE ON SCHEMA citus TO public;
GRANT SELECT ON citus.away TO public;

CREATE TABLE citus.pg_dist_node (
    nodeid serial, nodename text, nodeport int, noderole text DEFAULT 'primary',
    isactive bool DEFAULT true, shouldhaveshards bool DEFAULT true);
CREATE TABLE citus.pg_dist_partition (
    logicalrelid regclass PRIMARY KEY, partmethod "char", partkey text, colocationid int);
CREATE TABLE citus.pg_dist_shard_placement (
    shardid bigint, logicalrelid regclass, nodename text, nodeport int, shardstate int DEFAULT 1);
CREATE VIEW citus.pg_dist_shard AS
    SELECT logicalrelid, shardid FROM citus.pg_dist_shard_placement;
ALTER VIEW citus.pg_dist_shard SET SCHEMA pg_catalog;
ALTER TABLE citus.pg_dist_node SET SCHEMA pg_catalog;
ALTER TABLE citus.pg_dist_partition SET SCHEMA pg_catalog;
ALTER TABLE citus.pg_dist_shard_placement SET SCHEMA pg_catalog;
GRANT SELECT ON pg_catalog.pg_dist_node, pg_catalog.pg_dist_partition,
    pg_catalog.pg_dist_shard, pg_catalog.pg_dist_shard_placement TO public;
CREATE SEQUENCE citus.shard_ids START 102008;

CREATE FUNCTION pg_catalog.citus_add_node(name text, port int) RETURNS int LANGUAGE sql AS $$
    INSERT INTO pg_dist_node (nodename, nodeport) VALUES (name, port) RETURNING nodeid;
$$;

CREATE FUNCTION pg_catalog.create_distributed_table(
    table_name regclass, distribution_column text, distribution_type text DEFAULT 'hash',
    colocate_with text DEFAULT 'default', shard_count int DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    beside pg_dist_partition;
    part int;
    parts int := coalesce(shard_count, 4);
    shard bigint;
    relation text := table_name::text;
BEGIN
    IF EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = table_name) THEN
        RAISE EXCEPTION 'table "%" is already distributed', relation;
    END IF;
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = table_name AND NOT tgisinternal) THEN
        RAISE EXCEPTION 'cannot distribute relation "%" because it has triggers', relation;
    END IF;
    IF EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = table_name AND i.indisunique AND NOT EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = table_name
            AND a.attname = distribution_column AND a.attnum = ANY (i.indkey::int2[]))
    ) THEN
        RAISE EXCEPTION 'cannot create constraint on "%"', relation
            USING DETAIL = 'Distributed relations cannot have UNIQUE, EXCLUDE, or PRIMARY KEY '
                'constraints that do not include the partition column';
    END IF;
    IF colocate_with NOT IN ('default', 'none') THEN
        SELECT * INTO beside FROM pg_dist_partition
            WHERE logicalrelid = colocate_with::regclass;
        IF beside IS NULL THEN
            RAISE EXCEPTION 'relation % is not distributed', colocate_with;
        END IF;
        IF shard_count IS NOT NULL THEN
            RAISE EXCEPTION 'Cannot use colocate_with with a table and shard_count';
        END IF;
        parts := (SELECT count(*) FROM pg_dist_shard_placement
            WHERE logicalrelid = beside.logicalrelid);
    END IF;
    INSERT INTO citus.calls (call) VALUES (
        format('distribute %s by %s beside %s', relation, distribution_column, colocate_with));
    INSERT INTO pg_dist_partition VALUES (
        table_name, 'h', distribution_column, coalesce(beside.colocationid, table_name::oid::int));
    FOR part IN 0..parts - 1 LOOP
        shard := nextval('citus.shard_ids');
        INSERT INTO pg_dist_shard_placement
            SELECT shard, table_name, nodename, nodeport FROM pg_dist_node
            WHERE shouldhaveshards AND isactive ORDER BY nodeid
            OFFSET part % (SELECT count(*) FROM pg_dist_node WHERE shouldhaveshards AND isactive)
            LIMIT 1;
        CONTINUE WHEN relation NOT IN ('recollect.spaces', 'recollect.segments');
        EXECUTE format('CREATE TABLE %s_%s (LIKE %s INCLUDING ALL)', relation, shard, relation);
        EXECUTE format('GRANT SELECT ON %s_%s TO public', relation, shard);
        EXECUTE format(
            'INSERT INTO %s_%s SELECT * FROM %s WHERE abs(hashtext(%I::text)) %% %s = %s',
            relation, shard, relation, distribution_column, parts, part);
        IF relation = 'recollect.spaces' THEN  -- policies reach the shards
            EXECUTE format('ALTER TABLE %s_%s ENABLE ROW LEVEL SECURITY', relation, shard);
            EXECUTE format('CREATE POLICY due_work ON %s_%s FOR SELECT USING '
                '(current_setting(''app.worker'', true) = ''on'')', relation, shard);
        END IF;
        EXECUTE format('ALTER TABLE %s_%s SET SCHEMA citus', relation, shard);
    END LOOP;
END
$$;

CREATE FUNCTION pg_catalog.undistribute_table(table_name regclass)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO citus.calls (call) VALUES (format('undistribute %s', table_name::text));
    DELETE FROM pg_dist_partition WHERE logicalrelid = table_name;
    DELETE FROM pg_dist_shard_placement WHERE logicalrelid = table_name;
END
$$;

CREATE FUNCTION pg_catalog.truncate_local_data_after_distributing_table(table_name regclass)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = table_name) THEN
        RAISE EXCEPTION 'supplied parameter is not a distributed relation';
    END IF;
    INSERT INTO citus.calls (call) VALUES (format('truncate %s', table_name::text));
    EXECUTE format('TRUNCATE %s', table_name::text);
END
$$;

CREATE FUNCTION pg_catalog.create_distributed_function(function_name regprocedure)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO citus.calls (call) VALUES (format('function %s', function_name::text));
END
$$;

-- A command's result is one value, and a failure is told in its place, as Citus does it.
CREATE FUNCTION citus.run(node text, command text, OUT success bool, OUT result text)
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM citus.away a WHERE a.node = run.node) THEN
        success := false;
        result := 'failed to connect to ' || node;
        RETURN;
    END IF;
    IF command = 'CHECKPOINT' THEN  -- no function may run it
        result := 'CHECKPOINT';
    ELSE
        EXECUTE command INTO result;
    END IF;
    success := true;
    result := coalesce(result, '');
EXCEPTION WHEN others THEN
    success := false;
    result := 'ERROR:  ' || sqlerrm;
END
$$;

CREATE FUNCTION pg_catalog.run_command_on_workers(
    command text, parallel bool DEFAULT true, OUT nodename text, OUT nodeport int,
    OUT success bool, OUT result text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO citus.calls (call) VALUES (format('on workers: %s', command));
    RETURN QUERY SELECT n.nodename, n.nodeport, r.success, r.result FROM pg_dist_node n
        CROSS JOIN LATERAL citus.run(n.nodename || ':' || n.nodeport, command) AS r
        WHERE n.isactive ORDER BY n.nodename, n.nodeport;
END
$$;

-- A shard is named as in the schema of its table, though it is kept apart here.
CREATE FUNCTION pg_catalog.master_run_on_worker(
    worker_name text[], port int[], command text[], parallel bool, OUT node_name text,
    OUT node_port int, OUT success bool, OUT result text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT worker_name[1], port[1], r.success, r.result FROM citus.run(
        worker_name[1] || ':' || port[1],
        replace(command[1], 'recollect.spaces_', 'citus.spaces_')) AS r;
END
$$;

-- Refused on distributed tables.
CREATE FUNCTION citus.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_query() ~* 'SET\s+STATISTICS' AND EXISTS (
        SELECT FROM pg_event_trigger_ddl_commands() d
        JOIN pg_dist_partition p ON p.logicalrelid = d.objid
    ) THEN
        RAISE EXCEPTION 'alter table command is currently unsupported'
            USING ERRCODE = 'feature_not_supported';
    END IF;
END
$$;
CREATE EVENT TRIGGER citus_refuse ON ddl_command_end WHEN TAG IN ('ALTER TABLE')
    EXECUTE FUNCTION citus.refuse();
