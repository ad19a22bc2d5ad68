import socket
import zkwire as zk
import zkwire.testing as t
from zkwire.session.request import Request
from zkwire.blocking.replies import BlockingReply
def add_done_callback(self, f):
    self.driver.when_ready(self, lambda: f(self))
if not hasattr(BlockingReply, "add_done_callback"):
    BlockingReply.add_done_callback = add_done_callback
def break_connection(client):
    c = client._driver.current_connection
    if c: c.sock.shutdown(socket.SHUT_RDWR)
import importlib
try:
    from zkwire.testing import break_connection as _
except (ImportError, AttributeError):
    t.break_connection = break_connection
if not hasattr(zk.Client, "set_hosts"):
    def set_hosts(self, hosts):
        from zkwire.session.hosts import parse_hosts
        self._driver.replace_hosts(list(parse_hosts(hosts)[0]))
    zk.Client.set_hosts = set_hosts
import zkwire.operations.checks as ch, zkwire.operations.nodes as n
_old = ch.check_data
def check_data(d): return _old(b"" if d is None else d)
ch.check_data = n.check_data = check_data
