"""Empty TLS 1.3 records of a client that has completed its handshake. No TLS library sends them on request."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

APPLICATION_DATA = 23
HASHES: dict[str, tuple[hashes.HashAlgorithm, int]] = {
    "TLS_AES_256_GCM_SHA384": (hashes.SHA384(), 32),
    "TLS_AES_128_GCM_SHA256": (hashes.SHA256(), 16),
    "TLS_CHACHA20_POLY1305_SHA256": (hashes.SHA256(), 32),
}


class EmptyRecords:
    """Send empty records over a connection whose context wrote its keys to a file (`keylog_filename`)."""

    def __init__(self, tls: ssl.SSLSocket, keylog: Path) -> None:
        name = (tls.cipher() or ("",))[0]
        digest, size = HASHES[name]
        (secret,) = (
            bytes.fromhex(line.split()[2])
            for line in keylog.read_text().splitlines()
            if line.startswith("CLIENT_TRAFFIC_SECRET_0")
        )
        key, self._iv = _expand(digest, secret, "key", size), _expand(digest, secret, "iv", 12)
        self._cipher = ChaCha20Poly1305(key) if "CHACHA" in name else AESGCM(key)
        self._raw = socket.socket(fileno=os.dup(tls.fileno()))
        self._raw.settimeout(tls.gettimeout())
        self._number = 0

    def send(self) -> bool:
        """Send one record without content. False once the other side has closed the connection."""
        head = struct.pack(">BHH", APPLICATION_DATA, 0x0303, 1 + 16)
        nonce = (int.from_bytes(self._iv, "big") ^ self._number).to_bytes(12, "big")
        self._number += 1
        with suppress(OSError):
            self._raw.sendall(head + self._cipher.encrypt(nonce, bytes([APPLICATION_DATA]), head))
            return True
        return False

    def close(self) -> None:
        self._raw.close()


def _expand(digest: hashes.HashAlgorithm, secret: bytes, label: str, size: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446 without a context."""
    name = b"tls13 " + label.encode()
    info = struct.pack(">HB", size, len(name)) + name + b"\0"
    return HKDFExpand(digest, size, info).derive(secret)
