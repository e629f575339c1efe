"""Bound the number of unauthenticated connections: in total, and from one address."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ConnectionLimits(Generic[Item]):
    """Items in the order of their arrival, each with the address it came from. `add` says which ones must leave.

    Parameters
    ----------
    maximum : items at a time.
    per_address : items of one address at a time. Of IPv6 addresses the first 64 bits count: hosts choose the rest.
    """

    def __init__(self, maximum: int, per_address: int) -> None:
        self.maximum = maximum
        self.per_address = per_address
        self._items: dict[Item, str] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: Item) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Item]:
        return iter(list(self._items))

    def add(self, item: Item, address: str) -> list[Item]:
        """Add an item. Returns the items that are removed for it: the oldest ones of the address that has most."""
        place = _network(address)
        gone = []
        while self._counts[place] >= self.per_address:
            gone.append(self._oldest(place))
        while len(self._items) >= self.maximum:
            gone.append(self._oldest(self._counts.most_common(1)[0][0]))
        self._items[item] = place
        self._counts[place] += 1
        return gone

    def _oldest(self, place: str) -> Item:
        item = next(item for item, where in self._items.items() if where == place)
        self.remove(item)
        return item

    def remove(self, item: Item) -> bool:
        """Remove an item; False if it is not there."""
        place = self._items.pop(item, None)
        if place is None:
            return False
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]
        return True


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
