"""What `agl init` begins a recipe with: agents in several frameworks, tasks, and a policy that learns them on a CPU."""
