"""Both clients and their locks, mostly on embedded or scripted servers."""
