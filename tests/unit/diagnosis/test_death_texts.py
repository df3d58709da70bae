"""The texts that Python, torch, CUDA, NCCL and gloo write, and the cause that each names."""

import pytest

from echelon.diagnosis.deaths import Cause, DeathEvidence, explain_death

CUDA_NOTE = "\nCUDA kernel errors might be asynchronously reported at some other API call."
NCCL = "NCCL error in: ProcessGroupNCCL.cpp:3384, unhandled system error, NCCL version 2.27.3\n"
CASES = [
    (Cause.GPU_MEMORY, "RuntimeError", "CUDA error: out of memory" + CUDA_NOTE),
    (Cause.GPU_MEMORY, "RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (Cause.GPU_MEMORY, "torch.OutOfMemoryError", "HIP out of memory. Tried to allocate 2.00 GiB."),
    (Cause.MEMORY_ERROR, "MemoryError", ""),
    (Cause.MEMORY_ERROR, "numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 7.28 TiB for an array"),
    (
        Cause.MEMORY_ERROR,
        "RuntimeError",
        (
            "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
            "allocate memory: you tried to allocate 4503599627370496 bytes. Error code 12 (Cannot allocate memory)"
        ),
    ),
    (Cause.MEMORY_ERROR, "OSError", "[Errno 12] Cannot allocate memory"),
    (
        Cause.SHARED_MEMORY,
        "RuntimeError",
        (
            "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory. Please try to raise your shared memory limit."
        ),
    ),
    (Cause.SHARED_MEMORY, "RuntimeError", "unable to write to file </torch_7_1>: No space left on device (28)"),
    (Cause.SHARED_MEMORY, "RuntimeError", "unable to allocate shared memory(shm) for file </torch_1_2>: No space (28)"),
    (Cause.SHARED_MEMORY, "OSError", "[Errno 28] No space left on device: '/dev/shm/psm_1'"),
    (Cause.OPEN_FILES, "OSError", "[Errno 24] Too many open files: '/data/1.jpg'"),
    (Cause.OPEN_FILES, "RuntimeError", "unable to open shared memory object </torch_7_9>: Too many open files (24)"),
    (Cause.OPEN_FILES, "RuntimeError", "received 0 items of ancdata"),
    (Cause.PROCESS_LIMIT, "RuntimeError", "can't start new thread"),
    (Cause.NO_SPACE, "OSError", "[Errno 28] No space left on device: '/scratch/model.pt'"),
    (Cause.NO_SPACE, "RuntimeError", "[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598"),
    (Cause.NO_SPACE, "RuntimeError", "PytorchStreamWriter failed writing file data/0: file write failed"),
    (Cause.QUOTA, "OSError", "[Errno 122] Disk quota exceeded: '/home/me/model.pt'"),
    (Cause.DATA_WORKER, "RuntimeError", "DataLoader worker (pid(s) 812, 813) exited unexpectedly"),
    (Cause.DATA_WORKER, "RuntimeError", "DataLoader worker (pid 812) is killed by signal: Killed. "),
    (Cause.GPU_HARDWARE, "torch.AcceleratorError", "CUDA error: uncorrectable ECC error encountered" + CUDA_NOTE),
    (Cause.GPU_HARDWARE, "RuntimeError", "cuda runtime error (39) : uncorrectable ECC error encountered at x.cpp:265"),
    (
        Cause.GPU_HARDWARE,
        "RuntimeError",
        "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
    ),
    (Cause.GPU_HARDWARE, "RuntimeError", "Unable to determine the device handle for GPU 0000:1B:00.0: GPU is lost."),
    (Cause.GPU_ASSERT, "RuntimeError", "CUDA error: device-side assert triggered" + CUDA_NOTE),
    (Cause.GPU_ARCHITECTURE, "RuntimeError", "CUDA error: no kernel image is available for execution on the device"),
    (Cause.DRIVER_TOO_OLD, "RuntimeError", "The NVIDIA driver on your system is too old (found version 11040)."),
    (Cause.DRIVER_TOO_OLD, "RuntimeError", "CUDA error: CUDA driver version is insufficient for CUDA runtime version"),
    (Cause.GPU_MISSING, "RuntimeError", "No CUDA GPUs are available"),
    (Cause.GPU_MISSING, "RuntimeError", "CUDA error: invalid device ordinal" + CUDA_NOTE),
    (
        Cause.GPU_FORK,
        "RuntimeError",
        (
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        ),
    ),
    (Cause.GPU_ERROR, "torch.AcceleratorError", "CUDA error: an illegal memory access was encountered" + CUDA_NOTE),
    (Cause.GPU_ERROR, "RuntimeError", "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    (Cause.NCCL_ERROR, "torch.distributed.DistBackendError", NCCL + "ncclSystemError: System call failed"),
    (
        Cause.PEER_LOST,
        "torch.distributed.DistBackendError",
        NCCL + "ncclRemoteError: A call failed possibly due to a "
        "network error or a remote process exiting prematurely.",
    ),
    (Cause.PEER_LOST, "RuntimeError", "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:19678."),
    (Cause.COLLECTIVE_TIMEOUT, "RuntimeError", "[unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation"),
    (
        Cause.COLLECTIVE_TIMEOUT,
        "torch.distributed.DistBackendError",
        (
            "[Rank 0] Watchdog caught collective operation "
            "timeout: WorkNCCL(SeqNum=1204, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 milliseconds"
        ),
    ),
    (Cause.COLLECTIVE_MISMATCH, "RuntimeError", "Detected mismatch between collectives on ranks. Rank 0 is running"),
    (Cause.COLLECTIVE_MISMATCH, "RuntimeError", "[pair.cc:456] op.preamble.length <= op.nbytes. 4096 vs 4"),
    (
        Cause.RENDEZVOUS,
        "torch.distributed.DistStoreError",
        "Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
    ),
    (Cause.ADDRESS_IN_USE, "OSError", "[Errno 98] Address already in use"),
    (
        Cause.ADDRESS_IN_USE,
        "torch.distributed.DistNetworkError",
        (
            "The server socket has failed to listen on any local "
            "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        ),
    ),
    (Cause.NOT_A_NUMBER, "FloatingPointError", "loss is nan"),
    (Cause.NOT_A_NUMBER, "RuntimeError", "Function 'MulBackward0' returned nan values in its 0th output."),
    (
        Cause.NOT_A_NUMBER,
        "RuntimeError",
        "The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.",
    ),
    (Cause.NOT_A_NUMBER, "ValueError", "NaN in the gradients of layer 7"),
    (
        Cause.NOT_A_NUMBER,
        "ValueError",
        (
            "Expected parameter loc (Tensor of shape (2,)) of distribution Normal() to "
            "satisfy the constraint Real(), but found invalid values:\ntensor([nan, nan])"
        ),
    ),
    (Cause.SYNTAX_ERROR, "SyntaxError", "invalid syntax (train.py, line 3)"),
    (Cause.SYNTAX_ERROR, "IndentationError", "unexpected indent (train.py, line 3)"),
    (Cause.MISSING_MODULE, "ModuleNotFoundError", "No module named 'einops'"),
    (Cause.MISSING_MODULE, "ImportError", "cannot import name 'Trainer' from 'transformers'"),
    (Cause.BROKEN_LIBRARY, "ImportError", "libcudart.so.12: cannot open shared object file: No such file or directory"),
    (Cause.BROKEN_LIBRARY, "OSError", "/usr/lib/libx.so: undefined symbol: _ZN3c10"),
    (Cause.BROKEN_LIBRARY, "ImportError", "/lib/libstdc++.so.6: version `GLIBCXX_3' not found (required by x.so)"),
    (Cause.MISSING_FILE, "FileNotFoundError", "[Errno 2] No such file or directory: 'data.csv'"),
    (Cause.PERMISSION, "PermissionError", "[Errno 13] Permission denied: '/usr/model.pt'"),
    (Cause.PERMISSION, "OSError", "[Errno 30] Read-only file system: '/opt/x'"),
    (Cause.FILE_SYSTEM, "OSError", "[Errno 5] Input/output error: '/lustre/shard-3'"),
    (Cause.FILE_SYSTEM, "OSError", "[Errno 116] Stale file handle"),
    (Cause.NETWORK, "urllib.error.URLError", "<urlopen error [Errno -2] Name or service not known>"),
    (Cause.NETWORK, "requests.exceptions.ConnectionError", "Max retries exceeded with url: /gpt2"),
    (Cause.ENDED_BY_SIGNAL, "KeyboardInterrupt", ""),
    (Cause.EXCEPTION, "KeyError", "'lr'"),
    (Cause.EXCEPTION, "ValueError", "bad batch"),
    (Cause.EXCEPTION, "RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x4 and 5x4)"),
    (Cause.EXCEPTION, "AssertionError", ""),
]


@pytest.mark.parametrize(("cause", "error", "message"), CASES, ids=range(len(CASES)))
def test_text_of_an_exception_names_its_cause(cause, error, message):
    evidence = DeathEvidence(code=1, error_type=error, error_message=message)
    assert explain_death(evidence, 3, "n1").cause is cause
