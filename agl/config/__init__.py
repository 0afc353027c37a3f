"""Settings in, objects out; the only package that knows Hydra.

    settings = compose("train", ["+recipe=ppo_sql", "algorithm.group_size=16"])
    check(settings)                          # every mistake is a ConfigError, before anything starts
    trainer = build(settings, Trainer)

A node is a mapping with a ``_target_``; the target's signature is its schema. Targets outside ``agl`` must be named in
the root key ``trusted``, because building a node runs code.
"""

from agl.config.compose import built_in_folder, compose, load_settings, search_folders
from agl.config.nodes import build, check
from agl.config.settings import Settings, masked, save_settings, settings_text

__all__ = [
    "Settings",
    "build",
    "built_in_folder",
    "check",
    "compose",
    "load_settings",
    "masked",
    "save_settings",
    "search_folders",
    "settings_text",
]
