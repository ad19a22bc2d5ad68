"""zkwire under asyncio: the same core, operations and recipes on an event loop, no thread."""
