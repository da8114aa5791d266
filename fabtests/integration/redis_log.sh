#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# rpmem_redis.so: Redis, whose append-only files are in a remote log, survives
# kills. The example of rpmem_redis(7) runs as printed, in other folders.
# usage: redis_log.sh [KILLS [SEED]], in a build folder.
set -u
if [ -n "${RP_SANITIZE:-}" ]; then
	echo "SKIP: Debian's redis-server is not built with the sanitizer"
	exit 77
fi
for tool in redis-check-rdb python3; do
	command -v $tool >/dev/null || { echo "SKIP: $tool is missing"; exit 77; }
done
case $(bash -c 'exec -a redis-server redis-check-rdb --version') in
*v=7.0.*) ;;
*)
	echo "SKIP: Redis is not of version 7.0"
	exit 77
	;;
esac
src=$(cd "${srcdir:-..}" && pwd)
build=$PWD
kills=5
[ "${RP_LONG:-0}" != 1 ] || kills=200
unset FI_PROVIDER FI_OFI_RPMEM_CLASS

# example: run the commands of the page in a separate network namespace.
example()
{
	dir=$(mktemp -d ./redispage.XXXXXX) || exit 99
	mkdir "$dir/bin"
	printf '#!/bin/sh\nexec %s/util/fi_rpmemd "$@"\n' "$build" \
		>"$dir/bin/fi_rpmemd"
	# redis-tools contains the program redis-server under another name.
	printf '#!/bin/bash\nexec -a redis-server redis-check-rdb "$@"\n' \
		>"$dir/bin/redis-server"
	chmod +x "$dir/bin"/*
	{
		echo 'ip link set lo up'
		awk '/^\.Sh / { on = ($2 == "EXAMPLES") }
		     on && /^\.Bd -literal$/ { text = 1; next }
		     text && /^\.Ed/ { exit }
		     text { gsub(/\\e/, "\\"); print }' \
			"$src/man/rpmem_redis.7" |
			sed "s|/var/tmp|.|; s|/tmp/|./|g
				s|/usr/local/lib /usr/lib|$build/util/.libs|"
	} >"$dir/commands"
	(cd "$dir" && PATH=$PWD/bin:$PATH LD_LIBRARY_PATH=$build/util/.libs \
		timeout 60 unshare --net --pid --fork --kill-child \
		bash -e commands >out 2>&1)
	status=$?
	[ $status = 0 ] || grep -v '^Could not connect' "$dir/out"
	rm -rf "$dir"
	return $status
}

if unshare --net --pid --fork ip link >/dev/null 2>&1; then
	example || { echo "FAIL: the example of rpmem_redis(7)"; exit 1; }
	echo "# the example of rpmem_redis(7) runs"
else
	echo "# no network namespace here: the page's example is left out"
fi
exec python3 "$src/fabtests/integration/redis_log.py" "${1:-$kills}" ${2:+"$2"}
