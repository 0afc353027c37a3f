"""The parts of Anthropic's dialect; ``agl.proxy.dialects.anthropic_messages`` puts them together."""
