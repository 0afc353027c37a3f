"""What to sample, how to give credit, when to update and publish; never imports torch."""
