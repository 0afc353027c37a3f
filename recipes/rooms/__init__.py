"""A booking assistant with a tool, whose prompt is improved by a search."""
