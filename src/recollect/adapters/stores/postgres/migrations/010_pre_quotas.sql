-- Quotas of tenants, and how many bytes of messages each of their spaces holds.
ALTER TABLE recollect.tenants ADD COLUMN most_spaces bigint, ADD COLUMN most_bytes bigint;
ALTER TABLE recollect.tenant_spaces ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
