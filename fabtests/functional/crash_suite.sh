# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=sh disable=SC2034,SC2154
# Sourced by the suites of fi_rpmem_crashtest: the number of images, the checks
# of a result, and TAP.
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
n=0 status=0

# crash_enter NAME IMAGES: as enter; $images to check, and the seconds that one run
# of the tool may take, in $limit. With RP_LONG=1, where the tool is to acquit,
# the programs work for $rounds rounds, which have 10,000 images.
crash_enter()
{
	enter "$1"
	here=$PWD images=$2 limit=300 many= rounds=64
	[ "${RP_LONG:-0}" != 1 ] || many=10000 limit=9000
	tool=$top/util/fi_rpmem_crashtest
	# The leak checker cannot run in a traced program.
	ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
	export ASAN_OPTIONS
}

# fully COMMAND...: with $many images and $rounds rounds
fully()
{
	over_images "$images" '' "$@"
}

# over_images IMAGES ROUNDS COMMAND...: as fully, and without RP_LONG=1 with so many
over_images()
{
	few=$images images=${many:-$1} work=$2
	shift 2
	[ -z "$many" ] || work=$rounds
	[ -z "$work" ] || export CRASH_ROUNDS="$work"
	"$@"
	passed=$?
	unset CRASH_ROUNDS
	images=$few
	return $passed
}

# ended STATUS TEXT: check the exit status of the tool, and a line with TEXT.
ended()
{
	[ "$status" -eq "$1" ] && grep -q -e "$2" out
}

# reached: the acquittal in the file json is one over as many images as were
# requested, or over all images of all cuts.
reached()
{
	/usr/bin/python3 -I -S - "$images" <<'P' >>out 2>&1
import json
import sys

result = json.load(open("json"))
images = result["images"]
assert result["verdict"] == "acquitted", result["verdict"]
assert images["checked"] == images["distinct"] > 0, images
assert not images["sampled_cuts"] or images["checked"] == int(sys.argv[1]), images
print("%(checked)d images, %(exhaustive_cuts)d and %(sampled_cuts)d cuts" % images)
P
}

# ok NAME COMMAND...: the command must succeed.
ok()
{
	name=$1
	n=$((n + 1))
	shift
	if "$@"; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name (exit status $status)"
		sed 's/^/# /' out
		failed=1
	fi
}
