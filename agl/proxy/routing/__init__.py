"""Which upstream gets a call: by model, agent and mode; sticky by rollout; balanced, retried, with fallbacks.

The decisions are pure (table, choice, health, retry, tries); ``Router`` carries them out.
"""

from agl.proxy.routing.router import Router
from agl.proxy.routing.table import RouteTable

__all__ = ["RouteTable", "Router"]
