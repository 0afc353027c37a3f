"""The HTTP server of the store: ``create_app`` makes the application, ``StoreServer`` serves it."""

from agl.store.server.app import create_app
from agl.store.server.serving import StoreServer

__all__ = ["StoreServer", "create_app"]
