"""Client of owners and receivers in a federation, on their own machines: approve, contribute, fetch, verify."""

from .client import MemberClient

__all__ = ["MemberClient"]
