"""What both shells share: sockets, TLS, connecting, options."""
