"""The learner that lets the Tinker service do the computing."""
