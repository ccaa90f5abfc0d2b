"""How much of an outcome each decision gets."""
