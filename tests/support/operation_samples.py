"""One call or more of each operation: the one list from which other lists of the tests follow.

A sample is called with a client of either kind, or anything else that has the operations, and with
the path of a node that exists.  ``<path>/gone`` exists, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zkwire import OPEN_ACL_UNSAFE, Check, Create, GetData, Watch
from zkwire.wire.ops import OPS, Op

BY_NAME = {op.name: op for op in OPS.values()}


class Sample(NamedTuple):
    """A call of the operation ``method``, which a client sends as the protocol's ``op``."""

    method: str
    op: Op
    call: Callable[[Any, str], Any]


def _sample(op: str, call: Callable[[Any, str], Any], method: str = "") -> Sample:
    return Sample(method or op, BY_NAME[op], call)


SAMPLES = [
    _sample("create", lambda c, p: c.create(f"{p}/new", b"x", [*OPEN_ACL_UNSAFE])),
    _sample("create2", lambda c, p: c.create_with_stat(f"{p}/new", b"x"), "create_with_stat"),
    _sample("create_container", lambda c, p: c.create(f"{p}/new", container=True), "create"),
    _sample("create_ttl", lambda c, p: c.create(f"{p}/new", ttl=1), "create"),
    _sample("delete", lambda c, p: c.delete(f"{p}/gone")),
    _sample("set_data", lambda c, p: c.set_data(p, b"x")),
    _sample("set_acl", lambda c, p: c.set_acl(p, [*OPEN_ACL_UNSAFE])),
    _sample("exists", lambda c, p: c.exists(p, watch=Watch())),
    _sample("get_data", lambda c, p: c.get_data(p, watch=Watch())),
    _sample("get_children", lambda c, p: c.get_children(p, watch=Watch())),
    _sample("get_children2", lambda c, p: c.get_children_with_stat(p), "get_children_with_stat"),
    _sample("get_acl", lambda c, p: c.get_acl(p)),
    _sample("sync", lambda c, p: c.sync(p)),
    _sample("multi", lambda c, p: c.multi([Check(p), Create(f"{p}/m")])),
    _sample("multi_read", lambda c, p: c.multi_read([GetData(p), GetData(f"{p}/none")])),
    _sample("add_watch", lambda c, p: c.add_watch(p, Watch(), recursive=True)),
    _sample("remove_watches", lambda c, p: c.remove_watches(p)),
    _sample("auth", lambda c, p: c.add_auth("digest", b"a:b"), "add_auth"),
    _sample("who_am_i", lambda c, p: c.who_am_i()),
    _sample("get_ephemerals", lambda c, p: c.get_ephemerals(p)),
    _sample("get_all_children_number", lambda c, p: c.get_all_children_number(p)),
    _sample("get_data", lambda c, p: c.get_config(watch=Watch()), "get_config"),
    _sample("reconfig", lambda c, p: c.reconfig(leaving=["9"])),
]
OPERATIONS = {sample.method for sample in SAMPLES}
