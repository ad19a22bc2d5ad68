import socket
import zkwire as zk
import zkwire.testing as t
def break_connection(client):
    c = client._driver.current_connection
    if c: c.sock.shutdown(socket.SHUT_RDWR)
try:
    from zkwire.testing import break_connection as _
except (ImportError, AttributeError):
    t.break_connection = break_connection
if not hasattr(zk.Client, "set_hosts"):
    def set_hosts(self, hosts):
        from zkwire.session.hosts import parse_hosts
        self._driver.replace_hosts(list(parse_hosts(hosts)[0]))
    zk.Client.set_hosts = set_hosts
