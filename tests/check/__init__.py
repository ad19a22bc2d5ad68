"""What check.py is made of; Python's own library is enough for it."""
