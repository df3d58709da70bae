"""One rank frees memory twice."""

import ctypes

from common import others_wait

others_wait()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
memory = ctypes.c_void_p(libc.malloc(64))
libc.free(memory)
libc.free(memory)
