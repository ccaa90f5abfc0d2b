"""Step: proximal policy optimization of a policy against the size, or the scores, of the code that it makes."""
