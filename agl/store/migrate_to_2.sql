-- From version 1 to 2. `:now` stands for the time of the migration.

ALTER TABLE attempt ADD COLUMN taken_from INTEGER;
ALTER TABLE attempt ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE span ADD COLUMN packed BLOB;
ALTER TABLE span ADD COLUMN stored_at REAL;
CREATE INDEX rollout_resources ON rollout (resources_id) WHERE resources_id IS NOT NULL;
CREATE TABLE blob (
  blob INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  uses INTEGER NOT NULL
) STRICT;
CREATE TABLE blob_content (
  blob INTEGER PRIMARY KEY,
  content BLOB NOT NULL
) STRICT;
-- Version 1 did not keep when a span came: those of no rollout count from the migration.
UPDATE span SET stored_at = :now WHERE rollout IS NULL;
CREATE INDEX span_stray ON span (stored_at) WHERE stored_at IS NOT NULL;
