# SPDX-License-Identifier: BSD-2-Clause
"""The file systems on which databases.py runs a database."""
import collections
import shutil
import subprocess

# make, check: commands, which get the device; check finds nothing wrong in a file
# system that was mounted, and so has recovered, and was unmounted. pool: bytes.
# no_fsync: options of mount with which nothing but a sync makes a file system
# commit: a commit waits while the target is cut, and a database that does not
# sync would wait for it.
FileSystem = collections.namedtuple("FileSystem",
                                    "make options no_fsync check pool")
FILE_SYSTEMS = {
    "ext4": FileSystem(("mkfs.ext4", "-q", "-J", "size=4"), "defaults", "commit=600",
                       ("e2fsck", "-fn"), 160 << 20),
    # nouuid: images have the same UUID as the file system of the cut client.
    "xfs": FileSystem(("mkfs.xfs", "-q", "-K"), "nouuid", "nouuid",
                      ("xfs_repair", "-n"), 304 << 20),
}


def missing_tool(*tools):
    """The reason why one of these programs cannot be used, or None."""
    for tool in tools:
        if not shutil.which(tool):
            return (f"{tool} is missing; util/packages.sh names the packages "
                    "(PKG_DATABASES)")
    return None


def missing_fs(name):
    """The reason why this machine cannot use a file system, or None."""
    fs = FILE_SYSTEMS[name]
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "-q", name], check=False)
    with open("/proc/filesystems", encoding="ascii") as f:
        if name not in f.read().split():
            return f"this kernel has no {name}"
    return missing_tool(fs.make[0], fs.check[0])


def umount(folder):
    """Unmount a folder; returns 0 when it was."""
    return subprocess.run(["umount", folder], stderr=subprocess.DEVNULL,
                          check=False).returncode
