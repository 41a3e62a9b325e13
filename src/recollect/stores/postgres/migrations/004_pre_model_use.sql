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

ALTER TABLE recollect.model_use ENABLE ROW LEVEL SECURITY;
ALTER TABLE recollect.model_use FORCE ROW LEVEL SECURITY;
CREATE POLICY one_space ON recollect.model_use
    USING (space_id = nullif(current_setting('app.space_id', true), '')::uuid)
    WITH CHECK (space_id = nullif(current_setting('app.space_id', true), '')::uuid);
