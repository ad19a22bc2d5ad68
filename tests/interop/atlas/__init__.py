"""What ZooKeeper clients say, and do, when the connection breaks: docs/atlas.md.

    python3 -m tests.interop.atlas [CLIENT...]          compares with docs/atlas.json
    python3 -m tests.interop.atlas [CLIENT...] --write  writes it, the page and the picture

`drivers/` has one program for each client.  None knows what is expected of it: it follows the calls
of `driver.py`, line by line.  The situations are listed in `situations.py`; each trial looks at
the server through a client of its own, and judges all clients by the same function.
"""
