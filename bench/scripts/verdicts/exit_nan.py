"""One rank prints that its loss is nan and exits, as torchvision's reference scripts do."""

import sys

from common import others_wait

others_wait()
print(f"Loss is {float('nan')}, stopping training", flush=True)
sys.exit(1)
