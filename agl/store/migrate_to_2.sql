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
ALTER TABLE attempt ADD COLUMN rollout_created_at REAL NOT NULL DEFAULT 0.0;
UPDATE attempt SET rollout_created_at = (SELECT created_at FROM rollout WHERE position = attempt.rollout);
CREATE INDEX attempt_worker_rollout ON attempt (worker_id, rollout_created_at, rollout) WHERE worker_id IS NOT NULL;
CREATE VIRTUAL TABLE span_term USING fts5(terms, content='', detail=none, columnsize=0, tokenize='ascii');
INSERT INTO span_term (rowid, terms) SELECT position, stored_terms(run_id, name, attributes) FROM span;
CREATE TABLE tally (
  what TEXT NOT NULL,
  run ANY NOT NULL,
  key TEXT NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (what, run, key)
) STRICT, WITHOUT ROWID;
INSERT INTO tally SELECT 'rollouts', coalesce(run_id, x''), status, count(*) FROM rollout GROUP BY 2, 3;
INSERT INTO tally SELECT 'attempts', coalesce(r.run_id, x''), a.status, count(*)
  FROM attempt a JOIN rollout r ON r.position = a.rollout GROUP BY 2, 3;
INSERT INTO tally SELECT 'workers', coalesce(r.run_id, x''), a.worker_id, count(*)
  FROM attempt a JOIN rollout r ON r.position = a.rollout WHERE a.worker_id IS NOT NULL GROUP BY 2, 3;
INSERT INTO tally SELECT 'spans', coalesce(run_id, x''), '', count(*) FROM span GROUP BY 2;
CREATE TRIGGER rollout_added AFTER INSERT ON rollout BEGIN
  INSERT INTO tally VALUES ('rollouts', coalesce(NEW.run_id, x''), NEW.status, 1)
    ON CONFLICT (what, run, key) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER rollout_moved AFTER UPDATE OF status ON rollout WHEN NEW.status <> OLD.status BEGIN
  UPDATE tally SET number = number - 1 WHERE what = 'rollouts' AND run = coalesce(OLD.run_id, x'') AND key = OLD.status;
  INSERT INTO tally VALUES ('rollouts', coalesce(NEW.run_id, x''), NEW.status, 1)
    ON CONFLICT (what, run, key) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER rollout_deleted AFTER DELETE ON rollout BEGIN
  UPDATE tally SET number = number - 1 WHERE what = 'rollouts' AND run = coalesce(OLD.run_id, x'') AND key = OLD.status;
  DELETE FROM tally WHERE what = 'rollouts' AND run = coalesce(OLD.run_id, x'') AND number = 0;
END;
CREATE TRIGGER attempt_added AFTER INSERT ON attempt BEGIN
  INSERT INTO tally VALUES ('attempts', coalesce((SELECT run_id FROM rollout WHERE position = NEW.rollout), x''), NEW.status, 1)
    ON CONFLICT (what, run, key) DO UPDATE SET number = number + 1;
  INSERT INTO tally SELECT 'workers', coalesce(run_id, x''), NEW.worker_id, 1 FROM rollout
    WHERE position = NEW.rollout AND NEW.worker_id IS NOT NULL
    ON CONFLICT (what, run, key) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER attempt_moved AFTER UPDATE OF status ON attempt WHEN NEW.status <> OLD.status BEGIN
  UPDATE tally SET number = number - 1 WHERE what = 'attempts' AND run = coalesce((SELECT run_id FROM rollout WHERE position = OLD.rollout), x'') AND key = OLD.status;
  INSERT INTO tally VALUES ('attempts', coalesce((SELECT run_id FROM rollout WHERE position = NEW.rollout), x''), NEW.status, 1)
    ON CONFLICT (what, run, key) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER attempt_handed AFTER UPDATE OF worker_id ON attempt WHEN NEW.worker_id IS NOT OLD.worker_id BEGIN
  UPDATE tally SET number = number - 1 WHERE what = 'workers' AND run = coalesce((SELECT run_id FROM rollout WHERE position = OLD.rollout), x'') AND key = OLD.worker_id;
  INSERT INTO tally SELECT 'workers', coalesce(run_id, x''), NEW.worker_id, 1 FROM rollout
    WHERE position = NEW.rollout AND NEW.worker_id IS NOT NULL
    ON CONFLICT (what, run, key) DO UPDATE SET number = number + 1;
END;
CREATE TRIGGER attempt_deleted AFTER DELETE ON attempt BEGIN
  UPDATE tally SET number = number - 1 WHERE what = 'attempts' AND run = coalesce((SELECT run_id FROM rollout WHERE position = OLD.rollout), x'') AND key = OLD.status;
  UPDATE tally SET number = number - 1 WHERE what = 'workers' AND run = coalesce((SELECT run_id FROM rollout WHERE position = OLD.rollout), x'') AND key = OLD.worker_id;
  DELETE FROM tally WHERE what = 'attempts' AND run = coalesce((SELECT run_id FROM rollout WHERE position = OLD.rollout), x'') AND number = 0;
  DELETE FROM tally WHERE what = 'workers' AND run = coalesce((SELECT run_id FROM rollout WHERE position = OLD.rollout), x'') AND number = 0;
END;
CREATE TRIGGER span_deleted AFTER DELETE ON span BEGIN
  INSERT INTO span_term (span_term, rowid, terms)
    VALUES ('delete', OLD.position, stored_terms(OLD.run_id, OLD.name, OLD.attributes));
  UPDATE tally SET number = number - 1 WHERE what = 'spans' AND run = coalesce(OLD.run_id, x'') AND key = '';
  DELETE FROM tally WHERE what = 'spans' AND run = coalesce(OLD.run_id, x'') AND number = 0;
END;
