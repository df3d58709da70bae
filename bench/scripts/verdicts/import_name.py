"""One rank imports a name that its module does not have."""

from common import others_wait

others_wait()
from json import loads_all  # noqa: E402, F401
