"""Which decision gets which share of an outcome."""
