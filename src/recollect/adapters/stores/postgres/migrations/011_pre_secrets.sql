-- The data secret, which keys ids: one row per value of RECOLLECT_SECRET that opens it, wrapped.
CREATE TABLE recollect.secrets (
    number integer NOT NULL,
    record bytea NOT NULL,
    PRIMARY KEY (number)
);
