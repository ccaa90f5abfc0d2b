"""A stand-in for lld that records every link of a build whose objects are bitcode."""
