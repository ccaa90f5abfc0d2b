"""The corpus step: turns real code into modules of bitcode with their compiler command lines."""
