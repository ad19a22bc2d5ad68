"""The experiments of docs/connection-loss-reference.md, and the tables of what they observe.

    python3 -m tests.connection_loss --write

runs all of them on a real ZooKeeper, once with each client, and puts the tables into the document
if both say the same; `tests/real/test_connection_loss.py` runs the same and compares.

Every word of a table is either observed (what the server holds, what the caller is told, what a
recipe sends, which events come) or advice; and advice is a text beside the function that follows
it, which is run at each point of failure and must end in what was intended.

`case.py` one experiment's world · `clients.py` the two clients in one shape · `points.py` an
operation and the points of failure · `changes.py` `reads.py` the operations ·
`lagging.py` a real follower that is behind · `losses.py` the points of failure of a recipe's call ·
`recipes.py` `services.py` `classic.py` those calls, and those of `tests/support/simulation_….py` ·
`members.py` `watches.py` `sessions.py` the other tables · `every.py` all of them together ·
`document.py` the file · `data.py` the same as JSON
"""
