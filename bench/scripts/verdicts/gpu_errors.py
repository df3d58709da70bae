"""One rank raises the text of a GPU error, as torch and NCCL write it: gpu_errors.py memory. Needs no GPU."""

import sys

import torch
from common import others_wait

MEMORY = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 12.44 MiB is "
    "free. Including non-PyTorch memory, this process has 79.13 GiB memory in use. Of the allocated memory 60.35 GiB "
    "is allocated by PyTorch, and 17.62 GiB is reserved by PyTorch but unallocated."
)
LATER = "\nCUDA kernel errors might be asynchronously reported at some other API call."
NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3384, unhandled system error, NCCL version 2.27.3\nncclSystemError: "
TEXTS = {
    "memory": (torch.OutOfMemoryError, MEMORY),
    "ecc": (torch.AcceleratorError, "CUDA error: uncorrectable ECC error encountered" + LATER),
    "assert": (torch.AcceleratorError, "CUDA error: device-side assert triggered" + LATER),
    "architecture": (torch.AcceleratorError, "CUDA error: no kernel image is available for execution on the device"),
    "driver": (RuntimeError, "The NVIDIA driver on your system is too old (found version 11040)."),
    "access": (torch.AcceleratorError, "CUDA error: an illegal memory access was encountered" + LATER),
    "nccl": (torch.distributed.DistBackendError, NCCL + "System call or external library call failed"),
}
others_wait()
kind, text = TEXTS[sys.argv[1]]
raise kind(text)
