"""Recipe ppo_sql: train an agent that answers questions by writing, running and rewriting SQL."""
