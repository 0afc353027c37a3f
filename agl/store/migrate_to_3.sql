-- From version 2 to 3: retries may pause. What waits in the queue goes on waiting there.

ALTER TABLE rollout ADD COLUMN retry_at REAL;
CREATE INDEX rollout_retry ON rollout (retry_at, run_id) WHERE retry_at IS NOT NULL;
