"""State that several processes share: locks, leases, versioned documents, working directories."""
