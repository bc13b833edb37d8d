import jiter
import msgpack

assert jiter.from_json(b'{"a": [1, 2.5]}') == {"a": [1, 2.5]}
assert msgpack.unpackb(msgpack.packb({"a": [1, b"x"]})) == {"a": [1, b"x"]}
assert "cmsgpack" in msgpack.Packer.__module__, msgpack.Packer
