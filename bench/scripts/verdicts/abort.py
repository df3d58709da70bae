"""One rank aborts after an error in the C++ runtime."""

import ctypes

from common import others_wait

others_wait()
ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()
