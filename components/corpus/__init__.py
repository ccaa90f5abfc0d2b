"""The corpus step: real code in, modules of bitcode with their compiler command lines out."""
