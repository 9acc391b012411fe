"""GPT-2's way to write any byte as one visible character, and the order it puts the bytes in.

Vocabularies of byte-level BPE are kept as text in which each character stands for a byte: itself where it can be
seen, else the next character from U+0100 on, so that a space is written Ġ and a newline Ċ.
"""

_VISIBLE = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
_HIDDEN = [byte for byte in range(256) if byte not in _VISIBLE]

#: The 256 bytes in the order of their ids.
BYTES = [bytes([byte]) for byte in _VISIBLE + _HIDDEN]
CHARACTER_OF_BYTE = {byte: chr(byte) for byte in _VISIBLE} | {b: chr(256 + i) for i, b in enumerate(_HIDDEN)}
BYTE_OF_CHARACTER = {character: byte for byte, character in CHARACTER_OF_BYTE.items()}


def to_characters(token: bytes) -> str:
    r"""Return a token's bytes in visible characters.

    >>> to_characters(" né\n".encode())
    'ĠnÃ©Ċ'
    """
    return "".join(map(CHARACTER_OF_BYTE.__getitem__, token))


def to_bytes(characters: str) -> bytes:
    """Return the bytes that visible characters stand for.

    Raises:
        KeyError: a character stands for no byte.
    """
    return bytes(map(BYTE_OF_CHARACTER.__getitem__, characters))
