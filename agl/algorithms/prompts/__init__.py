"""What searches for better prompts share: candidates, their scores, a model that writes, and what all of it takes."""
