"""One rank loads a native library that is not installed."""

import ctypes

from common import others_wait

others_wait()
ctypes.CDLL("libcublas.so.99")
