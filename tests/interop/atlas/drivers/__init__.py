"""One program for each client; see lines.py for what they read and write."""
