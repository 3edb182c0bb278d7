"""The release's encoding of hidden tests: JSON, or base64 of zlib of a pickle of the JSON text."""

import base64
import binascii
import io
import pickle
import zlib
from typing import Any, NoReturn

from evorun.errors import DataError

MAX_BYTES = 2**31
"""Largest unpacked size of one problem's tests; the release's largest are some hundred megabytes."""


def decode_private_tests(encoded: str, where: str) -> str:
    """Return the JSON text of a record's private tests.

    A pickle can name any callable to be run on loading; this one may hold a string and nothing else. Raises DataError
    naming `where` (FILE:LINE) for anything else.
    """
    if encoded.lstrip().startswith("["):
        return encoded
    try:
        packed = base64.b64decode(encoded, validate=True)
        unpacked = _unpacked(packed)
        text = _StringsOnly(io.BytesIO(unpacked)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, ValueError, EOFError, IndexError, KeyError) as error:
        raise _refused(where, str(error)) from error
    # Whatever else the unpickler's machinery trips over in hostile bytes: it has run nothing, and there are no tests.
    except Exception as error:
        raise _refused(where, type(error).__name__) from error
    if not isinstance(text, str):
        raise _refused(where, f"the pickle holds a {type(text).__name__}")
    return text


def _unpacked(packed: bytes) -> bytes:
    stream = zlib.decompressobj()
    unpacked = stream.decompress(packed, MAX_BYTES)
    if stream.unconsumed_tail or not stream.eof:
        raise ValueError("the compressed tests are cut off or unpack to more than 2 GiB")
    return unpacked


class _StringsOnly(pickle.Unpickler):
    """Loads plain values; refuses every name that a pickle asks for."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to an object elsewhere")


def _refused(where: str, reason: str) -> DataError:
    plain = reason.splitlines()[0][:120] if reason else "unreadable"
    return DataError(f"{where}: private_test_cases: expected JSON, or base64 of zlib of a pickled JSON string: {plain}")
