"""A model that follows rules a person can read, in place of weights: for recipes that run without an API key."""
