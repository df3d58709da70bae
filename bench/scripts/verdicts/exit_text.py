"""One rank ends with sys.exit("text")."""

import sys

from common import others_wait

others_wait()
sys.exit("the vocabulary has 50257 entries, the checkpoint has 32000")
