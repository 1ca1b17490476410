"""The `tagloom` command, exports and reports."""
