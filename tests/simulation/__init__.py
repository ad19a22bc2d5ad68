"""Every order of events, in a simulated world."""
