"""Steps and the concepts they share."""
