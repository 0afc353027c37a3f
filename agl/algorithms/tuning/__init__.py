"""What supervised fine-tuning and preference optimization share: examples, where they come from, and the loop."""
