"""Copies a GGUF file (v3, little endian) with string metadata added: a tiny model with any chat template.
Format: ggml-org/ggml docs/gguf.md."""

import struct

STRING, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _skip(data, at, kind):
    if kind == STRING:
        return at + 8 + struct.unpack_from("<Q", data, at)[0]
    if kind == ARRAY:
        inner, n = struct.unpack_from("<IQ", data, at)
        at += 12
        if inner in SIZES:
            return at + n * SIZES[inner]
        for _ in range(n):
            at = _skip(data, at, inner)
        return at
    return at + SIZES[kind]


def _string(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def add_strings(source, target, values):
    """Writes target: source with the keys of `values` (which it must not have yet) as string metadata."""
    with open(source, "rb") as f:
        data = f.read()
    magic, version, n_tensors, n_kv = struct.unpack_from("<4sIQQ", data, 0)
    if (magic, version) != (b"GGUF", 3):
        raise ValueError("not a GGUF v3 file")
    at, align = 24, 32
    for _ in range(n_kv):
        n = struct.unpack_from("<Q", data, at)[0]
        key = data[at + 8 : at + 8 + n].decode()
        at += 8 + n
        kind = struct.unpack_from("<I", data, at)[0]
        if key == "general.alignment":
            align = struct.unpack_from("<I", data, at + 4)[0]
        if key in values:
            raise ValueError(f"{key} is there already")
        at = _skip(data, at + 4, kind)
    end_of_kv = at
    for _ in range(n_tensors):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4 + 8
    tensors = -(-at // align) * align
    added = b"".join(_string(k) + struct.pack("<I", STRING) + _string(v) for k, v in values.items())
    head = struct.pack("<4sIQQ", magic, version, n_tensors, n_kv + len(values)) + data[24:end_of_kv] + added + data[end_of_kv:at]
    head += b"\0" * (-len(head) % align)
    with open(target, "wb") as f:
        f.write(head + data[tensors:])


def set_u32(source, target, key, value):
    """Writes target: source with another value of a uint32 key."""
    with open(source, "rb") as f:
        data = bytearray(f.read())
    mark = _string(key) + struct.pack("<I", 4)
    if data.count(mark) != 1:
        raise ValueError(f"{key} is no uint32 of that file")
    struct.pack_into("<I", data, data.index(mark) + len(mark), value)
    with open(target, "wb") as f:
        f.write(data)


def tensors(path):
    """{name: (shape, type, position of its first byte in the file)}; the innermost dimension comes first."""
    with open(path, "rb") as f:
        data = f.read()
    n_tensors, n_kv = struct.unpack_from("<QQ", data, 8)
    at, align, found = 24, 32, {}
    for _ in range(n_kv):
        n = struct.unpack_from("<Q", data, at)[0]
        key, kind = data[at + 8 : at + 8 + n], struct.unpack_from("<I", data, at + 8 + n)[0]
        at += 12 + n
        if key == b"general.alignment":
            align = struct.unpack_from("<I", data, at)[0]
        at = _skip(data, at, kind)
    for _ in range(n_tensors):
        n = struct.unpack_from("<Q", data, at)[0]
        name, n_dims = data[at + 8 : at + 8 + n].decode(), struct.unpack_from("<I", data, at + 8 + n)[0]
        at += 12 + n
        shape = struct.unpack_from(f"<{n_dims}Q", data, at)
        kind, offset = struct.unpack_from("<IQ", data, at + 8 * n_dims)
        at += 8 * n_dims + 12
        found[name] = (shape, kind, offset)
    base = -(-at // align) * align
    return {name: (shape, kind, base + offset) for name, (shape, kind, offset) in found.items()}


def overwrite(source, target, at, bytes_):
    """Writes target: source with other bytes from position `at` on."""
    with open(source, "rb") as f:
        data = bytearray(f.read())
    data[at : at + len(bytes_)] = bytes_
    with open(target, "wb") as f:
        f.write(data)


def widen_token(source, target, token, text):
    """Writes target: source where token `token` has another text, lengthened at its end until the tensors stay aligned.
    Returns that text."""
    with open(source, "rb") as f:
        data = f.read()
    mark = _string("tokenizer.ggml.tokens") + struct.pack("<II", ARRAY, STRING)
    at = data.index(mark) + len(mark) + 8
    for _ in range(token):
        at = _skip(data, at, STRING)
    end = _skip(data, at, STRING)
    text += text[-1] * (-(8 + len(text.encode()) - (end - at)) % 32)
    with open(target, "wb") as f:
        f.write(data[:at] + _string(text) + data[end:])
    return text
