"""SHA-256 written in Python: 32-bit integer arithmetic."""

import hashlib

PRIMES = [n for n in range(2, 312) if all(n % d for d in range(2, int(n**0.5) + 1))]
K = [int((p ** (1 / 3) % 1) * 2**32) for p in PRIMES]
H = [int((p**0.5 % 1) * 2**32) for p in PRIMES[:8]]


def rotate(x: int, n: int) -> int:
    return (x >> n | x << (32 - n)) & 0xFFFFFFFF


def sha256(message: bytes) -> str:
    padded = message + b"\x80" + b"\0" * ((55 - len(message)) % 64) + (len(message) * 8).to_bytes(8, "big")
    state = H[:]
    for start in range(0, len(padded), 64):
        block = padded[start : start + 64]
        w = [int.from_bytes(block[i : i + 4], "big") for i in range(0, 64, 4)]
        for i in range(16, 64):
            s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3
            s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10
            w.append((w[i - 16] + s0 + w[i - 7] + s1) & 0xFFFFFFFF)
        a, b, c, d, e, f, g, h = state
        for k, x in zip(K, w):
            s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
            t1 = h + s1 + (e & f ^ ~e & g) + k + x
            s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
            t2 = s0 + (a & b ^ a & c ^ b & c)
            a, b, c, d, e, f, g, h = (t1 + t2) & 0xFFFFFFFF, a, b, c, (d + t1) & 0xFFFFFFFF, e, f, g
        state = [(x + y) & 0xFFFFFFFF for x, y in zip(state, (a, b, c, d, e, f, g, h))]
    return b"".join(x.to_bytes(4, "big") for x in state).hex()


def run() -> None:
    message = b"belljar " * 600
    assert sha256(message) == hashlib.sha256(message).hexdigest()
