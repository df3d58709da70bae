"""Numbers of the Linux system calls in which a rank may wait, and what their arguments mean."""

from __future__ import annotations


def parse_table(text: str) -> dict[int, str]:
    """Names by number, from `0 read 1 write`."""
    words = text.split()
    return {int(number): name for number, name in zip(words[::2], words[1::2], strict=True)}


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES = {
    "x86_64": parse_table("""
        0 read 1 write 2 open 3 close 4 stat 5 fstat 6 lstat 7 poll 17 pread64 18 pwrite64 19 readv 20 writev 21 access
        23 select 34 pause 35 nanosleep 40 sendfile 42 connect 43 accept 44 sendto 45 recvfrom 46 sendmsg 47 recvmsg
        61 wait4 72 fcntl 73 flock 74 fsync 75 fdatasync 76 truncate 77 ftruncate 82 rename 83 mkdir 84 rmdir 87 unlink
        89 readlink 137 statfs 162 sync 202 futex 217 getdents64 219 restart_syscall 230 clock_nanosleep 232 epoll_wait
        247 waitid 257 openat 258 mkdirat 262 newfstatat 263 unlinkat 264 renameat 267 readlinkat 269 faccessat
        270 pselect6 271 ppoll 281 epoll_pwait 285 fallocate 288 accept4 295 preadv 296 pwritev 316 renameat2
        326 copy_file_range 332 statx
    """),
    "aarch64": parse_table("""
        22 epoll_pwait 25 fcntl 32 flock 34 mkdirat 35 unlinkat 38 renameat 43 statfs 45 truncate 46 ftruncate
        47 fallocate 48 faccessat 56 openat 57 close 61 getdents64 63 read 64 write 65 readv 66 writev 67 pread64
        68 pwrite64 69 preadv 70 pwritev 71 sendfile 72 pselect6 73 ppoll 78 readlinkat 79 newfstatat 80 fstat 81 sync
        82 fsync 83 fdatasync 95 waitid 98 futex 101 nanosleep 115 clock_nanosleep 128 restart_syscall 202 accept
        203 connect 206 sendto 207 recvfrom 211 sendmsg 212 recvmsg 242 accept4 260 wait4 276 renameat2
        285 copy_file_range 291 statx
    """),
}
"""By `platform.machine()`."""
WITH_DESCRIPTOR = word_set("""
    read write close fstat pread64 pwrite64 readv writev fcntl flock fsync fdatasync ftruncate getdents64 fallocate
    preadv pwritev copy_file_range
""")
"""The first argument is a file descriptor."""
WITH_PATH = word_set("open stat lstat access truncate rename mkdir rmdir unlink readlink statfs")
"""The first argument is a path."""
WITH_FOLDER = word_set("openat mkdirat newfstatat unlinkat renameat readlinkat faccessat renameat2 statx")
"""The first argument is the file descriptor of a folder, the second is a path in it."""
