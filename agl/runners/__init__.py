"""Claim rollouts, execute one attempt each, report: the loop between the store and the agent."""
