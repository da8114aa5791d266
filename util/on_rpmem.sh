#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs a command on a file system whose block device is a pool of fi_rpmemd.
set -u

usage() {
	cat <<'U'
usage: util/on_rpmem.sh [OPTION...] [--size SIZE] [FILE] -- COMMAND [ARG...]
       util/on_rpmem.sh [OPTION...] [--secret FILE] HOST[:PORT]:POOL -- COMMAND [ARG...]
options: [--xfs] [--class CLASS]

Mounts a pool, runs COMMAND in the mounted folder (also in $RPMEM_MOUNT), which only
COMMAND sees, and takes all down again. Needs root. Returns the exit status of COMMAND, and 125 for
other failures, whatever COMMAND returned: above all when the last flush failed,
or a process that COMMAND has left behind still uses the folder. Both can mean
that bytes which COMMAND wrote, and did not fsync, are lost.

FILE is a pool on this host, which is created if it does not exist (256M, xfs 512M) and
kept. Without FILE the pool is a temporary one; or, behind rpmem_lead(1), its group
of pools, which is taken from the writer before. HOST:POOL is a pool of a running
fi_rpmemd. A new pool, or one of zeros, which is read to the end first, gets a file system:
ext4, or xfs. A pool with other bytes, such as a log, a replica or a copy of a file, is
refused. CLASS is what flushed bytes must survive: power (default), process or none.
On SIGTERM COMMAND gets SIGTERM, and all is taken down when it ends.

The pool becomes a block device by nbdkit's rpmem plugin, nbdfuse and a loop
device: an fsync of COMMAND returns when its bytes are durable in the pool.
U
}

die() { echo "on_rpmem.sh: $*" >&2; exit 125; }

size= default=256M fs=ext4 pool= secret= class=
while [ $# -gt 0 ]; do
	case $1 in
	--size) size=${2-}; shift ;;
	--class) class=${2-}; shift ;;
	--secret) secret=${2-}; shift ;;
	--xfs) fs=xfs default=512M ;; # mkfs.xfs wants 300M
	-h | --help) usage; exit 0 ;;
	--) shift; break ;;
	-*) usage >&2; exit 125 ;;
	*)
		[ -z "$pool" ] || { usage >&2; exit 125; }
		pool=$1
		;;
	esac
	shift
done
[ $# -gt 0 ] || { usage >&2; exit 125; }

[ "$(id -u)" = 0 ] || die "a mount needs root: use sudo"
for tool in nbdkit nbdinfo nbdfuse losetup unshare blkid mkfs.$fs; do
	command -v $tool >/dev/null || die "$tool is missing; on Debian:" \
		"apt-get install nbdkit libnbd-bin mount util-linux e2fsprogs xfsprogs"
done
[ -e /dev/fuse ] || die "no /dev/fuse here: load the module fuse"
[ -e /dev/loop-control ] || die "no /dev/loop-control here: load the module loop"

# Use the daemon and plugin of a build in this tree, or the installed ones.
src=$(cd "$(dirname "$0")/.." && pwd)
daemon=fi_rpmemd plugin=rpmem
for build in "${RPMEM_BUILD:-}" "$src/build-quick" "$src/build-check"; do
	[ -x "$build/util/fi_rpmemd" ] || continue
	daemon=$build/util/fi_rpmemd
	plugin=$build/util/.libs/nbdkit-rpmem-plugin.so
	export FI_PROVIDER_PATH=$build/prov/rpmem/.libs
	break
done
command -v "$daemon" >/dev/null || die "no fi_rpmemd: install ofi_rpmem, or run" \
	"util/quickstart.sh --build-only"
nbdkit "$plugin" --version >/dev/null 2>&1 || die "nbdkit has no rpmem plugin:" \
	"install nbdkit-plugin-dev, then build again"

tmp=${TMPDIR:-/var/tmp}
work=$(mktemp -d "$tmp/on_rpmem.XXXXXX") || die "no folder in $tmp"
mkdir "$work/fuse" "$work/mnt"
chmod 711 "$work" # COMMAND may run as another user
daemon_pid= nbdkit_pid= fuse_pid= loop= loop_fd=

warn() { echo "on_rpmem.sh: $*" >&2; : >"$work/lost"; }

# users_of FOLDER: print the processes that have a file or their working directory
# in FOLDER, on one line.
users_of() {
	find /proc/[0-9]*/fd /proc/[0-9]*/cwd -lname "$1*" 2>/dev/null |
		cut -d/ -f3 | sort -un | paste -sd' '
}

# unmount FOLDER: try for 5 seconds, because a process that uses FOLDER may be
# ending.
unmount() {
	for _ in $(seq 50); do
		umount "$1" 2>/dev/null && return 0
		sleep 0.1
	done
	return 1
}

# Flush the file system, unmount it, and flush what unmounting has written to the
# loop device.
leave_mount() {
	local users

	sync -f "$work/mnt" || warn "the last flush failed: what COMMAND wrote and" \
		"did not fsync may be lost"
	if unmount "$work/mnt"; then
		[ -e "$work/lost" ] || sync "$loop" || warn "the last flush failed:" \
			"the file system on the pool may need a repair"
		return 0
	fi
	users=$(users_of "$work/mnt")
	warn "the folder is still in use${users:+, by process $users}: what is" \
		"written from now on is lost; let COMMAND end all that it starts"
	umount -l "$work/mnt"
}

# in_mount COMMAND...: mount the file system, run COMMAND there, and unmount it.
in_mount() {
	local command_pid= status

	trap '[ -z "$command_pid" ] && exit 130; kill -TERM "$command_pid"' INT TERM
	mount "$loop" "$work/mnt" || die "the file system on the pool cannot be mounted"
	cd "$work/mnt" || exit 125
	RPMEM_MOUNT=$work/mnt "$@" <&0 &
	command_pid=$!
	wait_for $command_pid
	status=$?
	trap '' INT TERM
	cd /
	leave_mount
	exit $status
}

# wait_for PID: wait until the process ends, even if signals interrupt wait.
wait_for() {
	while kill -0 "$1" 2>/dev/null; do
		wait "$1" 2>/dev/null
	done
	wait "$1" 2>/dev/null
}

finish() {
	local lost=

	trap '' INT TERM
	[ ! -e "$work/lost" ] || lost=1
	[ -z "$loop_fd" ] || exec {loop_fd}<&-
	if [ -n "$fuse_pid" ]; then
		umount "$work/fuse" 2>/dev/null || umount -l "$work/fuse"
		# End nbdfuse although a process that COMMAND has left behind may
		# have a copy of its mount.
		kill "$fuse_pid" 2>/dev/null
		wait "$fuse_pid"
	fi
	for p in $nbdkit_pid $daemon_pid; do
		kill "$p" 2>/dev/null && wait "$p"
	done
	# --one-file-system: keep the files of a pool that is still mounted.
	rm -rf --one-file-system "$work"
	[ -z "$lost" ] || exit 125
}
trap finish EXIT
command_pid=
trap '[ -z "$command_pid" ] && exit 130; kill -TERM "$command_pid"' INT TERM

# until_ready WHAT PID LOG COMMAND...: wait until COMMAND succeeds.
until_ready() {
	local what=$1 pid=$2 log=$3

	shift 3
	until "$@" 2>/dev/null; do
		kill -0 "$pid" 2>/dev/null || { cat "$log" >&2; die "$what ended"; }
		sleep 0.05
	done
}

# wants_fs: succeed if the pool is to be formatted: this run has created it, or all
# its bytes are zeros.
wants_fs() {
	[ -z "$created" ] || return 0
	blkid --probe "$loop" >/dev/null 2>"$work/blkid.log"
	case $? in
	0) return 1 ;;
	2) ;; # blkid has found nothing, or could not read
	8) die "the pool has signatures of several file systems, and is not" \
		"formatted: remove the wrong ones (wipefs); or, to erase it, $erase" ;;
	*) die "blkid has failed: $(head -n 1 "$work/blkid.log")" ;;
	esac
	echo "on_rpmem.sh: the pool has no file system: reading it to the end, to" \
		"make one if all bytes are zeros" >&2
	cmp -sn "$(blockdev --getsize64 "$loop")" "$loop" /dev/zero
	case $? in
	0) return 0 ;;
	1) die "the pool has bytes, but no file system, and is not formatted;" \
		"to erase them, $erase" ;;
	*) die "the pool cannot be read: $(tail -n 1 "$work/nbdkit.log")" ;;
	esac
}

[ -n "$pool" ] || pool=${RPMEM_GROUP-}
created=
erase="end its fi_rpmemd, remove the pool's file, and start fi_rpmemd with --create"
case $pool in
*:*,*:*)
	set_pool=(pool="$pool" take=true)
	;;
*:*)
	set_pool=(target="${pool%:*}" pool="${pool##*:}")
	;;
*)
	# Put a temporary pool into a directory whose msync reaches a disk.
	[ -n "$pool" ] || pool=$work/pool
	name=$(basename "$pool")
	erase="remove $pool"
	[ -e "$pool" ] || created=1
	[ -n "$size" ] || [ -z "$created" ] || size=$default
	"$daemon" ${size:+--create "$size"} --port 0 --port-file "$work/port" "$pool" \
		>"$work/daemon.log" 2>&1 &
	daemon_pid=$!
	until_ready fi_rpmemd $daemon_pid "$work/daemon.log" test -s "$work/port"
	set_pool=(target="127.0.0.1:$(cat "$work/port")" pool="$name")
	;;
esac
nbdkit -f -U "$work/nbd" "$plugin" "${set_pool[@]}" ${secret:+secret="$secret"} \
	${class:+class="$class"} \
	2>"$work/nbdkit.log" &
nbdkit_pid=$!
uri="nbd+unix:///?socket=$work/nbd"
# Wait until nbdkit serves the pool: its socket exists before the pool is open.
until_ready nbdkit $nbdkit_pid "$work/nbdkit.log" nbdinfo --size "$uri" >"$work/size"
nbdfuse "$work/fuse/disk" "$uri" 2>"$work/fuse.log" &
fuse_pid=$!
until_ready nbdfuse $fuse_pid "$work/fuse.log" test -e "$work/fuse/disk"
loop=$(losetup --find --show "$work/fuse/disk") || die "no loop device"
# Detach the loop device now: the kernel does so when nothing has the device open
# any more, even if SIGKILL ends this script.
exec {loop_fd}<"$loop"
losetup --detach "$loop"
if wants_fs; then
	mkfs.$fs -q "$loop" 2>"$work/mkfs.log" ||
		die "mkfs.$fs: $(head -n 1 "$work/mkfs.log"); give a larger --size"
fi
# Mount the file system in a namespace without nbdfuse and nbdkit. The last process
# of a mount namespace unmounts its file systems when it ends, and that cannot be
# killed: nbdfuse or nbdkit would wait there for its own replies.
inside=$(declare -p work loop && declare -f die warn users_of unmount leave_mount wait_for in_mount)
unshare --mount --propagation slave "$BASH" -uc "$inside; in_mount \"\$@\"" on_rpmem.sh "$@" <&0 {loop_fd}<&- &
command_pid=$!
wait_for $command_pid
