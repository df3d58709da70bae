"""Faults of a test node for `echelon doctor`: mounts, network and libraries, made for real and taken back afterwards."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from folder import UID

STUCK = """
import ctypes, os, stat, sys, time
os.mknod("/tmp/fuse", 0o600 | stat.S_IFCHR, os.makedev(10, 229))
fd = os.open("/tmp/fuse", os.O_RDWR)
os.unlink("/tmp/fuse")
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None).mount(b"stuck", sys.argv[1].encode(), b"fuse.stuck", ctypes.c_ulong(0), options) != 0:
    sys.exit("cannot mount")
print("ready", flush=True)
time.sleep(600)  # never answers
"""
AHEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = next(id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += 300;
    return code;
}
"""


class Faults(contextlib.ExitStack):
    """Everything that is broken here is whole again at the end of the `with` block."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster = cluster

    def on(self, node, *argv, check=True):
        return self.cluster.run(node, list(argv), user="root", check=check)

    def mount(self, node, path, *argv):
        self.on(node, "mount", *argv, str(path))
        self.callback(self.on, node, "umount", "-l", str(path))

    def remount(self, node, path, options, back):
        self.on(node, "mount", "-o", f"remount,{options}", path)
        self.callback(self.on, node, "mount", "-o", f"remount,{back}", path)

    def tmpfs(self, node, path, options):
        self.mount(node, path, "-t", "tmpfs", "-o", f"mode=1777,{options}", "tmpfs")

    def hosts(self, node, folder, name, address):
        """Another /etc/hosts on the node, with a wrong address of one name."""
        path = Path(folder) / f"hosts-{node}"
        right = self.on(node, "cat", "/etc/hosts").stdout
        path.write_text(right.replace(self.cluster.addresses[name], address))
        path.chmod(0o644)
        self.mount(node, "/etc/hosts", "--bind", str(path))

    def mtu(self, node, value):
        self.on(node, "ip", "link", "set", "eth0", "mtu", str(value))
        self.callback(self.on, node, "ip", "link", "set", "eth0", "mtu", "1500")

    def drop(self, node, source):
        """A firewall on the node that drops new connections from one other node."""
        rule = ("INPUT", "-p", "tcp", "--syn", "-s", self.cluster.addresses[source], "-j", "DROP")
        self.on(node, "iptables-legacy", "-A", *rule)
        self.callback(self.on, node, "iptables-legacy", "-D", *rule)

    def slow_link(self, node, rate="40mbit"):
        self.on(
            node, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64k", "latency", "400ms"
        )
        self.callback(self.on, node, "tc", "qdisc", "del", "dev", "eth0", "root")

    def stuck_mount(self, node, path):
        """A FUSE mount whose program never answers."""
        program = self.enter_context(self.cluster.popen(node, [sys.executable, "-c", STUCK, str(path)], user="root"))
        self.callback(program.kill)
        assert program.stdout.readline() == "ready\n", program.stderr.read()
        self.callback(self.on, node, "umount", "-l", str(path))

    def clock_library(self, folder):
        """A library that puts the clock of its process five minutes ahead: time namespaces shift other clocks only."""
        source, library = Path(folder) / "ahead.c", Path(folder) / "ahead.so"
        source.write_text(AHEAD)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        library.chmod(0o755)
        return library


def user_folder(parent, name):
    folder = Path(parent) / name
    folder.mkdir()
    os.chown(folder, UID, UID)
    return folder


def only_on(node, line):
    """A line of --setup that acts on one node."""
    return ("--setup", f'[ "$(hostname)" != {node} ] || {line}')
