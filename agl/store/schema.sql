-- The SQLite store, version 3. `position` numbers every row in the order in which the store wrote it.
-- A change here is a new version: a file migrate_to_N.sql beside this one and a step in sqlite/migrations.py.

CREATE TABLE identity (
  identity TEXT NOT NULL,
  created_at REAL NOT NULL
) STRICT;

CREATE TABLE rollout (
  position INTEGER PRIMARY KEY,
  rollout_id TEXT NOT NULL UNIQUE,
  run_id TEXT,
  task TEXT NOT NULL,                -- JSON, like config, metadata, reward_dimensions and error
  mode TEXT NOT NULL,
  group_id TEXT,
  resources_id TEXT,
  config TEXT NOT NULL,
  metadata TEXT NOT NULL,
  priority INTEGER NOT NULL,
  status TEXT NOT NULL,
  reward REAL,
  reward_dimensions TEXT NOT NULL,
  error TEXT,
  created_at REAL NOT NULL,
  started_at REAL,
  finished_at REAL,
  num_attempts INTEGER NOT NULL,
  queue_position INTEGER,            -- place in the queue; NULL unless pending or requeuing, and while a retry pauses
  retry_at REAL                      -- when a retry that pauses gets its place in the queue; NULL for all others
) STRICT;
CREATE INDEX rollout_queue ON rollout (priority DESC, queue_position) WHERE queue_position IS NOT NULL;
CREATE INDEX rollout_run_queue ON rollout (run_id, priority DESC, queue_position) WHERE queue_position IS NOT NULL;
CREATE INDEX rollout_retry ON rollout (retry_at, run_id) WHERE retry_at IS NOT NULL;
CREATE INDEX rollout_created ON rollout (created_at);
CREATE INDEX rollout_started ON rollout (started_at);
CREATE INDEX rollout_finished ON rollout (finished_at);
CREATE INDEX rollout_reward ON rollout (reward);
CREATE INDEX rollout_status ON rollout (status, created_at);
CREATE INDEX rollout_run ON rollout (run_id, status, created_at) WHERE run_id IS NOT NULL;
CREATE INDEX rollout_group ON rollout (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX rollout_resources ON rollout (resources_id) WHERE resources_id IS NOT NULL;

CREATE TABLE attempt (
  position INTEGER PRIMARY KEY,
  attempt_id TEXT NOT NULL UNIQUE,
  rollout INTEGER NOT NULL REFERENCES rollout (position),
  sequence_id INTEGER NOT NULL,
  worker_id TEXT,
  status TEXT NOT NULL,
  started_at REAL NOT NULL,
  last_heartbeat_at REAL NOT NULL,
  finished_at REAL,
  error TEXT,
  lease REAL,
  deadline REAL,                     -- the lease or the time limit, whichever is first; NULL unless the watchdog must look
  request_id TEXT,                   -- of the dequeue that made the attempt
  ended_by TEXT,                     -- digest of the report that ended the attempt
  next_span INTEGER NOT NULL DEFAULT 1,
  taken_from INTEGER,                -- the rollout's place in the queue before this attempt
  pinned INTEGER NOT NULL DEFAULT 0, -- 1 where this attempt gave the rollout its resources
  rollout_created_at REAL NOT NULL DEFAULT 0.0, -- the same as the rollout's: orders a worker's rollouts by their creation
  UNIQUE (rollout, sequence_id)
) STRICT;
CREATE INDEX attempt_deadline ON attempt (deadline) WHERE deadline IS NOT NULL;
CREATE INDEX attempt_worker ON attempt (worker_id);
CREATE INDEX attempt_worker_rollout ON attempt (worker_id, rollout_created_at, rollout) WHERE worker_id IS NOT NULL;
CREATE INDEX attempt_open ON attempt (worker_id) WHERE finished_at IS NULL;
CREATE INDEX attempt_status ON attempt (status);
CREATE INDEX attempt_request ON attempt (request_id) WHERE request_id IS NOT NULL;

CREATE TABLE span (
  position INTEGER PRIMARY KEY,
  trace_id ANY NOT NULL,             -- 16 bytes where the id is hex, like span_id and parent_id with 8; else text
  span_id ANY NOT NULL,
  parent_id ANY,
  rollout INTEGER,                   -- positions of the rollout and the attempt; attempt is 0 for a span of no attempt
  attempt INTEGER NOT NULL,
  run_id TEXT,
  sequence_id INTEGER NOT NULL,      -- within the attempt; the position for a span of no attempt
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  status TEXT,                       -- JSON, like events, links and resource; NULL is the default
  attributes TEXT NOT NULL,
  events TEXT,
  links TEXT,
  resource TEXT,
  start_time_ns INTEGER NOT NULL,
  end_time_ns INTEGER,
  packed BLOB,                       -- token ids and logprobs that `attributes` refers to: see packed.py
  stored_at REAL                     -- NULL for a span of a rollout, which goes when its rollout does
) STRICT;
CREATE UNIQUE INDEX span_id ON span (trace_id, span_id);
CREATE UNIQUE INDEX span_attempt ON span (rollout, attempt, sequence_id) WHERE rollout IS NOT NULL;
CREATE INDEX span_run ON span (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX span_name ON span (name);
CREATE INDEX span_stray ON span (stored_at) WHERE stored_at IS NOT NULL;

-- Long texts within the JSON of other tables stand here once and are referred to by number: see sqlite/blobs.py.
CREATE TABLE blob (
  blob INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE,
  uses INTEGER NOT NULL              -- references from rows; deleting the last deletes the blob
) STRICT;
CREATE TABLE blob_content (
  blob INTEGER PRIMARY KEY,
  content BLOB NOT NULL
) STRICT;

CREATE TABLE resources (
  version INTEGER PRIMARY KEY,
  resources_id TEXT NOT NULL UNIQUE,
  run_id TEXT,
  resources TEXT NOT NULL,
  created_at REAL NOT NULL
) STRICT;
CREATE INDEX resources_run ON resources (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE worker (
  position INTEGER PRIMARY KEY,
  worker_id TEXT NOT NULL UNIQUE,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  attempts TEXT NOT NULL,
  registered_at REAL NOT NULL,
  last_heartbeat_at REAL NOT NULL,
  stats TEXT NOT NULL
) STRICT;
CREATE INDEX worker_heartbeat ON worker (last_heartbeat_at);

CREATE TABLE run (
  position INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  command TEXT NOT NULL,
  settings TEXT NOT NULL,
  git_commit TEXT,
  status TEXT NOT NULL,
  created_at REAL NOT NULL,
  finished_at REAL
) STRICT;

CREATE TABLE metric (
  run_id TEXT NOT NULL,
  step INTEGER NOT NULL,
  name TEXT NOT NULL,
  value REAL NOT NULL,
  time REAL NOT NULL,
  PRIMARY KEY (run_id, step, name)
) STRICT, WITHOUT ROWID;

-- What spans are found by beside the indexes of their columns: see sqlite/terms.py. Its rowid is the span's position.
CREATE VIRTUAL TABLE span_term USING fts5(terms, content='', detail=none, columnsize=0, tokenize='ascii');

-- Counts of each run: rollouts and attempts (key: status), attempts of workers (key: worker) and spans (key: none). x'' is
-- the run of what has none. New spans are counted by sqlite/tally.py, all else by these triggers.
CREATE TABLE tally (
  what TEXT NOT NULL,
  run ANY NOT NULL,
  key TEXT NOT NULL,
  number INTEGER NOT NULL,
  PRIMARY KEY (what, run, key)
) STRICT, WITHOUT ROWID;
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
