"""Step: proximal policy optimization of a policy against the size of the code that it makes."""
