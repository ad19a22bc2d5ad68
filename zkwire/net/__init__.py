"""What both clients share: the driver, sockets, TLS, connecting, options."""
