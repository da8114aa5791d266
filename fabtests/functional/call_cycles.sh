#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# No more than three files of one folder of prov call each other in a circle.
set -u
limit=3
command -v readelf >/dev/null || {
	echo "1..0 # SKIP readelf is missing; on Debian: apt-get install binutils"
	exit 77
}

# objects DIRECTORY: print the object files built from it.
objects()
{
	find "prov/$1" -path '*/.libs/*.o' ! -name 'fabtests_*' | sort
}

# calls DIRECTORY: "def FILE FUNCTION" and "use FILE FUNCTION" for each
# definition and call. Functions that interpose.c defines under a name of
# libibverbs count as the library's: a caller of ibv_reg_mr() means the library,
# with the preload or without it.
calls()
{
	for o in $(objects "$1"); do
		f=$(basename "$o" .o)
		f=${f##*-}
		readelf -sW "$o" | awk -v f="$f" '
			f == "interpose" && $8 !~ /^(rpmem|rp)_/ { next }
			$4 == "FUNC" && $5 == "GLOBAL" && $7 != "UND" {
				print "def", f, $8
			}'
		# Read only calls and jumps, no uses of an address.
		readelf -rW "$o" | awk -v f="$f" '
			$3 ~ /_(PLT32|CALL26|JUMP26|CALL_PLT)$/ { print "use", f, $5 }'
	done
}

# Print the largest cycle of files, and the calls in it.
circle()
{
	awk '
	$1 == "def" { where[$3] = $2; files[$2] = 1 }
	$1 == "use" { use[$2, $3] = 1 }
	END {
		for (u in use) {
			split(u, p, SUBSEP)
			if (!(p[2] in where) || where[p[2]] == p[1])
				continue
			e = p[1] SUBSEP where[p[2]]
			by[e] = by[e] " " p[2]
			reach[e] = 1
		}
		for (k in files) for (i in files) {
			if (!((i, k) in reach))
				continue
			for (j in files)
				if ((k, j) in reach)
					reach[i, j] = 1
		}
		most = 1
		for (i in files) {
			n = 0
			for (j in files)
				n += (i, j) in reach && (j, i) in reach
			if (n > most) {
				most = n
				first = i
			}
		}
		for (i in files)
			total++
		print most, total + 0
		for (e in by) {
			split(e, p, SUBSEP)
			if (first != "" && (first, p[1]) in reach &&
			    (p[1], first) in reach && (first, p[2]) in reach &&
			    (p[2], first) in reach)
				print "# " p[1] " -> " p[2] ":" by[e]
		}
	}'
}

failed=0 n=0
echo "1..4"
for dir in core rc rpmem verbs; do
	n=$((n + 1))
	if [ -z "$(objects $dir)" ]; then
		echo "ok $n - prov/$dir # SKIP it is not built"
		continue
	fi
	found=$(calls $dir | circle)
	files=$(echo "$found" | head -1)
	total=${files#* } files=${files% *}
	if [ "$total" -gt 1 ] && [ "$files" -le $limit ]; then
		echo "ok $n - prov/$dir: $files of $total files in the largest circle"
	else
		echo "not ok $n - prov/$dir: $files of $total files in the largest" \
			"circle, at most $limit"
		echo "$found" | tail -n +2 | sort
		failed=1
	fi
done
exit $failed
