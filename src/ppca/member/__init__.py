"""What owners and receivers do in a federation, on their own machines: approve, contribute, fetch, verify."""

from .desk import Member

__all__ = ["Member"]
