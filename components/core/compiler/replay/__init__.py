"""Which recorded options of a module a replay keeps."""
