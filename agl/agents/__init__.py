"""The user's program as agl runs it: functions and classes, found by 'pkg.mod:name' or 'file.py:name'."""
