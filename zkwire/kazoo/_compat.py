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
