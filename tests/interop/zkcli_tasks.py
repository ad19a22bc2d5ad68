"""Forty things that one does with nodes, as lines of zkwire and of ZooKeeper's own shell.

Each begins with the nodes of `NODES`, and those that name it with a quota on ``/app/dir``.  Where
zkCli needs several commands, ``; `` separates them.
"""

from __future__ import annotations

from typing import NamedTuple

NODES = {
    "/app": b"",
    "/app/config": b"limit=10",
    "/app/binary": b"\x00\x01\xfe\xff",
    "/app/dir": b"",
    "/app/dir/inner": b"x",
}


class Task(NamedTuple):
    """One task: what it is, and how each of the two does it."""

    what: str
    zkwire: str
    zkcli: str
    quota: bool = False


TASKS = (
    Task("list children", "ls /app", "ls /app"),
    Task("list the children of a missing node", "ls /none", "ls /none"),
    Task("list all below", "ls -R /app", "ls -R /app"),
    Task("draw all below", "tree /app", "ls -R /app"),
    Task("count children", "ls --count /app", "stat /app"),
    Task("count all below", "count /app", "getAllChildrenNumber /app"),
    Task("read data", "get /app/config", "get /app/config"),
    Task("read data of a missing node", "get /app/none", "get /app/none"),
    Task("read data and stat", "get -s /app/config", "get -s /app/config"),
    Task("read bytes", "get --hex /app/binary", "get -x /app/binary"),
    Task("read the stat", "stat /app", "stat /app"),
    Task("ask whether a node exists", "exists /app/config", "stat /app/config"),
    Task("ask for a missing node", "exists /app/none", "stat /app/none"),
    Task("create", "create /app/new one", "create /app/new one"),
    Task("create what exists", "create /app/config x", "create /app/config x"),
    Task("create below a missing node", "create /none/x y", "create /none/x y"),
    Task("create with all above", "create -p /a/b/c", "create /a; create /a/b; create /a/b/c"),
    Task("create with a number", "create -s /app/job- x", "create -s /app/job- x"),
    Task("create a container", "create -c /app/box", "create -c /app/box"),
    Task("create for an hour", "create -t 1h /app/brief x", "create -t 3600000 /app/brief x"),
    Task(
        "create with an access list",
        "create --acl world:anyone:ra /app/shut x",
        "create /app/shut x world:anyone:ra",
    ),
    Task("write", "set /app/config two", "set /app/config two"),
    Task("write this version", "set -v 0 /app/config two", "set -v 0 /app/config two"),
    Task("write an old version", "set -v 7 /app/config two", "set -v 7 /app/config two"),
    Task("write, or create as here", "set --create /new x", "create /new x"),
    Task(
        "change two nodes at once",
        "txn 'set /app/config two' 'create /app/done'",
        "set /app/config two; create /app/done",
    ),
    Task("delete", "rm /app/config", "delete /app/config"),
    Task("delete this version", "rm -v 0 /app/config", "delete -v 0 /app/config"),
    Task("delete an old version", "rm -v 7 /app/config", "delete -v 7 /app/config"),
    Task("delete what has children", "rm /app", "delete /app"),
    Task("delete what may be missing", "rm -f /app/none", "delete /app/none"),
    Task("delete all below", "rm -r /app/dir", "deleteall /app/dir"),
    Task("read the access list", "acl get /app", "getAcl /app"),
    Task(
        "replace the access list",
        "acl set /app/config world:anyone:ra",
        "setAcl /app/config world:anyone:ra",
    ),
    Task(
        "replace all access lists below",
        "acl set -R /app/dir ip:127.0.0.1:cdrwa",
        "setAcl -R /app/dir ip:127.0.0.1:cdrwa",
    ),
    Task("set a quota", "quota set /app -n 100", "setquota -n 100 /app"),
    Task("read a quota", "quota get /app/dir", "listquota /app/dir", quota=True),
    Task("delete a quota", "quota del /app/dir", "delquota /app/dir", quota=True),
    Task("show the identities of the session", "whoami", "whoami"),
    Task("mistype a command", "gte /app", "gte /app"),
)
