"""Programs of other ZooKeeper clients that do the same tasks on any server, and say what they see.

Each is a program in its client's language, which gets a connect string as its argument, and knows
no right answers; `clients.py` makes it ready to run.
"""
