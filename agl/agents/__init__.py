"""The user's program: functions as agents, loaded by `pkg.mod:name` or `path/file.py:name`."""
