"""The learner of one process, on CPU or one GPU: models, losses, batches, updates, checkpoints."""
