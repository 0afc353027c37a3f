"""Run tasks n times under given resources; means and intervals."""
