"""One rank imports a module that is not installed."""

import importlib

from common import others_wait

others_wait()
importlib.import_module("flash_attention_3")
