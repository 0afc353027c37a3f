"""The user's program: functions, classes and commands as agents, by `pkg.mod:name`, `path/file.py:name` or argv."""
