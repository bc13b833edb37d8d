"""``hashlib.pbkdf2_hmac``, which CPython takes from OpenSSL, and which Pyodide's build therefore lacks."""

from types import ModuleType
from typing import Any

from . import import_patches


def install() -> None:
    """Adds the function to ``hashlib``."""
    import_patches.when_imported("hashlib", _add_pbkdf2)


def _add_pbkdf2(module: ModuleType) -> None:
    new = module.new

    def pbkdf2_hmac(hash_name: str, password: Any, salt: Any, iterations: int, dklen: int | None = None) -> bytes:
        """Password based key derivation function 2 (PKCS #5 v2.0), with HMAC as its pseudorandom function."""
        inner, outer = new(hash_name), new(hash_name)
        size = inner.digest_size
        length = size if dklen is None else dklen
        if iterations < 1:
            raise ValueError("iteration value must be greater than 0.")
        if length < 1:
            raise ValueError("key length must be greater than 0.")
        key = bytes(password)
        if len(key) > inner.block_size:
            key = new(hash_name, key).digest()
        key = key.ljust(inner.block_size, b"\0")
        inner.update(bytes(byte ^ 0x36 for byte in key))
        outer.update(bytes(byte ^ 0x5C for byte in key))

        def keyed(message: bytes) -> bytes:
            first, second = inner.copy(), outer.copy()
            first.update(message)
            second.update(first.digest())
            return second.digest()

        derived = b""
        while len(derived) < length:
            number = len(derived) // size + 1
            block = keyed(bytes(salt) + number.to_bytes(4, "big"))
            total = int.from_bytes(block, "big")
            for _ in range(iterations - 1):
                block = keyed(block)
                total ^= int.from_bytes(block, "big")
            derived += total.to_bytes(size, "big")
        return derived[:length]

    if not hasattr(module, "pbkdf2_hmac"):
        module.pbkdf2_hmac = pbkdf2_hmac
