"""Bytes to typed records and back: ZooKeeper's serialisation, complete in both directions.

``record`` turns a class body into a codec, ``records`` is the schema, ``frames`` the length prefix,
``multi`` the bodies that string several records together.
"""
