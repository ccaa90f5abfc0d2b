"""What a decision is worth, measured by compiling again with it taken the other way."""
