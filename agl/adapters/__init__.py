"""Pure functions from spans to training data: triplets, trajectories, samples."""
