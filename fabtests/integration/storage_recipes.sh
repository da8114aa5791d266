#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs the commands of docs/storage.md as printed, in a separate network
# namespace; only the folder /data is another one. databases.sh starts it in a
# build folder.
set -u
[ -z "${RP_SANITIZE:-}" ] || { echo "SKIP: nbdkit is not built with the sanitizer"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "SKIP: mounts file systems: needs root"; exit 77; }
for tool in nbdkit nbdfuse nbdcopy mkfs.ext4 ip unshare; do
	command -v $tool >/dev/null || { echo "SKIP: $tool is missing"; exit 77; }
done
if [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
	echo "SKIP: no /dev/fuse or /dev/loop-control here"
	exit 77
fi
[ -e util/.libs/nbdkit-rpmem-plugin.so ] || { echo "SKIP: built without nbdkit's plugin"; exit 77; }
build=$PWD
src=$(cd "${srcdir:-.}" && pwd)
if [ "${1-}" != inside ]; then
	unshare --net --mount true 2>/dev/null ||
		{ echo "SKIP: no network namespace can be made here"; exit 77; }
	exec unshare --net --mount --pid --fork --kill-child sh "$0" inside
fi
ip link set lo up || exit 99
mount -t proc proc /proc || exit 99
# A short path, because names of sockets are limited.
dir=$(mktemp -d /var/tmp/recipes.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
chmod 755 "$dir"
RPMEM_BUILD=$build FI_PROVIDER_PATH=$build/prov/rpmem/.libs
export RPMEM_BUILD FI_PROVIDER_PATH
unset FI_PROVIDER FI_OFI_RPMEM_CLASS
# Install the programs as `make install` would.
mkdir "$dir/bin"
cat >"$dir/bin/nbdkit" <<S
#!/bin/sh
s=
while [ "\${1#-}" != "\$1" ]; do
	s="\$s \$1 \$2"
	shift 2
done
[ "\$1" != rpmem ] || { shift; set -- $build/util/.libs/nbdkit-rpmem-plugin.so "\$@"; }
exec /usr/bin/nbdkit \$s "\$@"
S
printf '#!/bin/sh\nexec %s/util/fi_rpmemd "$@"\n' "$build" >"$dir/bin/fi_rpmemd"
printf '#!/bin/sh\nexec bash %s/util/rpmem_lead.sh "$@"\n' "$src" >"$dir/bin/rpmem_lead"
chmod +x "$dir/bin/"*
PATH=$dir/bin:$PATH
cd "$src" || exit 99
failed=0

# block HEADING: the commands of a section, except those that need the module
# nbd
block()
{
	awk -v want="$1" '
		/^#/ { on = $0 == want }
		!/^    / { module = 0 }
		/^    modprobe/ { module = 1 }
		on && !module && sub(/^    /, "")' docs/storage.md |
		grep -v '^ *<\|apt-get\|^-drive' |
		sed "s|/data\\b|$dir/data|g
			s|/usr/local/.*/rpmem_redis.so|$build/util/.libs/rpmem_redis.so|"
}

# stop NAME...: end all processes of these names in this namespace.
stop()
{
	for name in "$@"; do
		while pkill -9 -x "$name"; do
			sleep 0.05
		done
	done
}

# recipe HEADING [OTHER]: run a section on a new pool; run OTHER's commands
# before the section's commands that stop everything.
recipe()
{
	{
		block "# Storage on a pool"
		block "$1" | sed '/^umount\|^kill/,$d'
		block "${2-}"
		block "$1" | sed -n '/^umount\|^kill/,$p'
	} >"$dir/commands"
	[ "$(wc -l <"$dir/commands")" -ge 2 ] || { echo "FAIL: no '$1'"; failed=1; }
	if ! timeout 120 sh -e "$dir/commands" >"$dir/out" 2>&1 </dev/null; then
		if grep -q "weaker than required" "$dir/out"; then
			echo "SKIP: no file system here on which msync reaches a disk"
			exit 77
		fi
		echo "FAIL: $1${2:+, $2}"
		cat "$dir/commands" "$dir/out"
		failed=1
	fi
	umount "$dir/data/mnt" "$dir/data/fuse" 2>/dev/null
	stop nbdkit nbdfuse fi_rpmemd lt-fi_rpmemd etcd
	rm -rf "$dir/data"
	echo "done: $1${2:+, $2}"
}

recipe "## A command on a file system"
recipe "## An image, there and back"
recipe "## A mounted file system"
if command -v qemu-img >/dev/null; then
	recipe "## A disk of a virtual machine"
fi
if command -v sqlite3 >/dev/null; then
	recipe "## SQLite"
fi
if command -v pmempool >/dev/null && [ -e "$build/util/.libs/librpmem.so.1" ]; then
	LD_LIBRARY_PATH=$build/util/.libs recipe "## libpmemobj"
fi
if [ -x /usr/lib/postgresql/15/bin/initdb ]; then
	recipe "## A mounted file system" "## PostgreSQL"
fi
if [ -x /usr/lib/postgresql/15/bin/initdb ] && command -v etcd etcdctl >/dev/null; then
	recipe "## A database that moves to another machine"
fi
if command -v redis-server >/dev/null; then
	recipe "## Redis without a disk"
fi
if command -v fio >/dev/null; then
	recipe "## An image, there and back" "## fio"
fi
recipe "## An image, there and back" "## A larger pool"
exit $failed
