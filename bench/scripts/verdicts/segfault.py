"""One rank reads address 0 in native code."""

import ctypes

from common import others_wait


def read_past_the_end():
    return ctypes.string_at(0)


others_wait()
read_past_the_end()
