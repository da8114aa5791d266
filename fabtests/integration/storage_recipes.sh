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
# The mount of nbdfuse leaves its namespace, and no later one, such as that of the loop
# device, comes in: nbdfuse as the last process would unmount that, and hang.
cat >"$dir/bin/nbdfuse" <<S
#!/bin/sh
fuse=$dir/data/fuse
[ "\${1%/*}" != "\$fuse" ] || # util/on_rpmem.sh has its own way
	{ mount --bind "\$fuse" "\$fuse" && mount --make-shared "\$fuse" &&
		exec unshare --mount --propagation unchanged /usr/bin/nbdfuse "\$@"; }
exec /usr/bin/nbdfuse "\$@"
S
printf '#!/bin/sh\nexec bash %s/util/rpmem_lead.sh "$@"\n' "$src" >"$dir/bin/rpmem_lead"
chmod +x "$dir/bin/"*
PATH=$dir/bin:$PATH
cd "$src" || exit 99
failed=0

# block HEADING: the commands of a section.
block()
{
	awk -v want="$1" '
		/^#/ { on = $0 == want }
		on && sub(/^    /, "")' docs/storage.md |
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

# skip NAME REASON
skip()
{
	echo "ok - $1 # SKIP $2"
}

# has TOOLS NAME: are these programs there? If not, print that NAME is skipped.
has()
{
	for tool in $1; do
		command -v "$tool" >/dev/null && continue
		skip "storage.md, $2" "$tool is missing; util/packages.sh names its package"
		return 1
	done
}

# inside TOOLS HEADING: run this section's commands inside the next recipe, before
# the recipe's commands that stop everything.
: >"$dir/tried"
: >"$dir/inside"
inside()
{
	echo "$2" >>"$dir/tried"
	! has "$1" "${2#\#* }" || echo "$2" >>"$dir/inside"
}

# recipe TOOLS HEADING: run a section on a new pool, and what is to run inside it,
# $more too.
recipe()
{
	echo "$2" >>"$dir/tried"
	has "$1" "${2#\#* }" || return
	{
		block "# Storage on a pool"
		block "$2" | sed '/^umount\|^kill \$(cat/,$d'
		while read -r heading; do
			block "$heading"
		done <"$dir/inside"
		echo "${more-}"
		block "$2" | sed -n '/^umount\|^kill \$(cat/,$p'
	} >"$dir/commands"
	echo "$2" >>"$dir/inside"
	result=ok
	if ! timeout 300 sh -e "$dir/commands" >"$dir/out" 2>&1 </dev/null; then
		if grep -q "weaker than required" "$dir/out"; then
			echo "SKIP: no file system here on which msync reaches a disk"
			exit 77
		fi
		cat "$dir/commands" "$dir/out"
		result="not ok"
		failed=1
	fi
	sed "s/^#*/$result - storage.md,/" "$dir/inside"
	: >"$dir/inside"
	umount "$dir/data/mnt" "$dir/data/fuse" 2>/dev/null
	stop nbdkit nbdfuse fi_rpmemd lt-fi_rpmemd etcd redis-server
	rm -rf "$dir/data"
}

# Without a kernel's file system or module, a recipe does not apply here.
kernel_has()
{
	modprobe -q "$1" 2>/dev/null || grep -qw "$1" /proc/filesystems ||
		[ -d "/sys/module/$1" ]
}

# inapplicable HEADING REASON: this section cannot run here.
inapplicable()
{
	echo "$1" >>"$dir/tried"
	skip "storage.md, ${1#\#* }" "$2"
}

mounted="## A mounted file system"
disk="## A disk of a virtual machine"
recipe "" "## A command on a file system"
inside fio "## fio"
inside "" "## A larger pool"
recipe "" "## An image, there and back"
initdb=/usr/lib/postgresql/15/bin/initdb
inside "$initdb" "## PostgreSQL"
inside "$initdb" "## PostgreSQL: only the log"
inside redis-server "## Redis"
inside "etcd etcdctl" "## etcd"
recipe "" "$mounted"
if kernel_has xfs; then
	recipe mkfs.xfs "$mounted: xfs"
else
	inapplicable "$mounted: xfs" "this kernel has no xfs"
fi
if ! kernel_has nbd; then
	inapplicable "$mounted: the kernel's nbd client" "this kernel has no module nbd"
elif [ -e /sys/block/nbd0/pid ]; then
	inapplicable "$mounted: the kernel's nbd client" "/dev/nbd0 is in use"
else
	recipe nbd-client "$mounted: the kernel's nbd client"
fi
# The line for qemu opens the disk, in a machine that is not started.
if has qemu-system-x86_64 "the line for qemu"; then
	drive=$(sed -n "/^    -drive/{s|/data\b|$dir/data|g;p}" docs/storage.md)
	more="printf 'info block\nquit\n' | qemu-system-x86_64 -M q35 -S -nodefaults -display none -monitor stdio $drive >$dir/drive
grep '^virtio0.*nbd.*raw' $dir/drive"
fi
recipe qemu-img "$disk"
more=
recipe "" "$disk: libvirt"
# The disk of libvirt is the one that the commands of its section serve.
sed -n '/^    *</s/^    //p' docs/storage.md >"$dir/disk.xml"
if ! command -v python3 >/dev/null; then
	skip "storage.md, libvirt's XML" "python3 is missing"
elif python3 - "$dir/disk.xml" >"$dir/uri" <<'P' &&
import sys
import xml.etree.ElementTree as ElementTree

disk = ElementTree.parse(sys.argv[1]).getroot()
host, driver = disk.find("source/host"), disk.find("driver")
assert disk.tag == "disk" and disk.get("type") == "network"
assert disk.find("source").get("protocol") == "nbd"
assert driver.get("type") == "raw" and driver.get("cache") == "none"
assert disk.find("target").get("bus") == "virtio"
print(f"nbd://{host.get('name')}:{host.get('port')}/" +
      disk.find("source").get("name"))
P
	block "$disk: libvirt" | grep -qFx "nbdinfo $(cat "$dir/uri")"; then
	echo "ok - storage.md, libvirt's XML"
else
	cat "$dir/disk.xml" "$dir/uri"
	echo "not ok - storage.md, libvirt's XML"
	failed=1
fi
# libvirt's schema has this disk in a domain.
schemas=${RP_LIBVIRT_SCHEMAS:-/usr/share/libvirt/schemas}
if [ ! -e "$schemas/domain.rng" ]; then
	skip "storage.md, libvirt's schema" "libvirt0 is missing: no $schemas/domain.rng"
elif has xmllint "libvirt's schema"; then
	{
		echo "<domain type='kvm'><name>guest</name><memory>262144</memory>"
		echo "<os><type arch='x86_64'>hvm</type></os><devices>"
		cat "$dir/disk.xml"
		echo "</devices></domain>"
	} >"$dir/domain.xml"
	if xmllint --noout --relaxng "$schemas/domain.rng" "$dir/domain.xml" >"$dir/out" 2>&1; then
		echo "ok - storage.md, libvirt's schema"
	else
		cat "$dir/out" "$dir/domain.xml"
		echo "not ok - storage.md, libvirt's schema"
		failed=1
	fi
fi
recipe sqlite3 "## SQLite"
if [ -e "$build/util/.libs/librpmem.so.1" ]; then
	LD_LIBRARY_PATH=$build/util/.libs recipe pmempool "## libpmemobj"
else
	inapplicable "## libpmemobj" "built without librpmem: no PMDK 1.12 here"
fi
# The unit for dqlite, whose servers functional/dqlite.sh runs: the library exists, and
# reads each variable.
echo "## dqlite" >>"$dir/tried"
unit=$(block "## dqlite" | sed -n 's/^Environment=//p')
preload=$build/util/.libs/$(echo "$unit" | sed -n 's|.*LD_PRELOAD=[^ ]*/\([^ /]*\).*|\1|p')
unread=$(echo "$unit" | grep -o 'RPMEM_[A-Z_]*' | while read -r name; do
	grep -q "$name" "$preload" || echo "$name"
done)
if [ ! -e "$build/util/librpmem_raft_preload.la" ]; then
	skip "storage.md, dqlite" "built without librpmem_raft: no libraft here"
elif [ -f "$preload" ] && [ -z "$unread" ]; then
	echo "ok - storage.md, dqlite"
else
	echo "not ok - storage.md, dqlite: $unit: $unread"
	failed=1
fi
recipe "$initdb etcd etcdctl" "## A database that moves to another machine"
recipe redis-server "## Redis without a disk"

# Each section with commands is a recipe.
awk '/^#/ { heading = $0 }
	/^    [^ <-]/ && heading != "# Storage on a pool" { print heading }' \
	docs/storage.md | sort -u >"$dir/sections"
sort -u "$dir/tried" | comm -13 - "$dir/sections" >"$dir/untried"
if [ -s "$dir/untried" ]; then
	sed 's/^/not ok - storage.md, never run: /' "$dir/untried"
	failed=1
fi
exit $failed
