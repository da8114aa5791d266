# SPDX-License-Identifier: BSD-2-Clause
# Roots made of Debian packages, cached for later runs; sourced by guest.sh,
# platform.sh and package.sh, which set $cache, $build, $work and $url, and kill
# $child.
# shellcheck shell=bash disable=SC2154

# run COMMAND...: run in the background, so that this shell handles signals at
# once; the kernel kills the command if this script is killed.
run() {
	setpriv --pdeathsig KILL -- "$@" &
	child=$!
	wait $child
	local code=$?
	child=
	return $code
}

# apart SCRIPT ARG...: run in a separate mount and process namespace, which ends
# with all its mounts and processes.
apart() {
	run unshare --mount --propagation private --pid --fork --kill-child \
		--mount-proc -- "$@"
}

# The Debian mirror that apt on this machine uses.
mirror() {
	apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' \
		'Created-By: Packages' 2>/dev/null |
		awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# state SUITE: a hash of the suite's package lists; a change of any package
# changes it.
state() {
	/usr/lib/apt/apt-helper download-file \
		"${url%/}/dists/$1/InRelease" "$work/release" >/dev/null 2>&1 ||
		return
	sed -n 's,^ \([0-9a-f]\{64\}\) .* main/binary-amd64/Packages.xz$,\1,p' \
		"$work/release"
}

# make_root SCRIPT SUITE LOG NAME: make $image.new. Tried twice, because a
# mirror may fail.
make_root() {
	local script=$1 suite=$2 log=$3 name=$4 try

	for try in 1 2; do
		# This script holds the lock, so unfinished roots belong to no
		# other run.
		rm -rf "$cache/$name-"*.new
		apart "$script" "$url" "$suite" "$image.new" >"$log" 2>&1 &&
			return
		tail -20 "$log"
		[ $try = 2 ] || sleep 10
	done
	rm -rf "$image.new"
	return 1
}

# cached NAME SUITE SCRIPT: set $image to the root that SCRIPT makes of the
# suite's packages, locked until the next call. 77 if the root is missing and
# the mirror is unreachable.
cached() {
	local name=$1 suite=$2 script now old

	script=$(sha256sum <"$3" | cut -c1-12)
	now=$(state "$suite" | cut -c1-12)
	mkdir -p "$cache"
	image=
	if [ -n "$now" ]; then
		image=$cache/$name-$script-$now
	else
		# Without a network use the newest cached root.
		for old in $(ls -dt "$cache/$name-$script-"*/ 2>/dev/null); do
			image=${old%/}
			echo "# $suite: the mirror is out of reach, $image is used"
			break
		done
		[ -n "$image" ] || return 77
	fi
	exec 8>"$cache/$name.lock"
	flock 8 || return
	if [ ! -d "$image" ]; then
		make_root "$3" "$suite" "$build/$name.image.log" \
			"$name" || return
		mv "$image.new" "$image"
		tail -1 "$build/$name.image.log"
	fi
	exec 9<"$image"
	flock -s 9
	for old in "$cache/$name-"*/; do
		[ "${old%/}" = "$image" ] || flock -n "$old" rm -rf "$old"
	done
	exec 8>&-
}
