"""The HTTP client store: the store's whole contract, answered by an ``agl store`` somewhere else."""

from agl.store.client.store import HttpStore, LightningStoreClient

__all__ = ["HttpStore", "LightningStoreClient"]
