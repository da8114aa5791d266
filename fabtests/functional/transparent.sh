#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Random programs see the same on tcp and on tcp;ofi_rpmem, beside commits.
set -u
fixed=150 new=450 bad=0
[ "${RP_LONG:-0}" != 1 ] || fixed=1000 new=9000
[ -z "${RP_SANITIZE:-}" ] || fixed=30 new=30

# The differences in is_documented() are those that docs/guarantees.md lists.
words=$(sed -n '/^## What a program may notice/,/^## Limits/p' \
	"${srcdir:-.}/docs/guarantees.md" | tr -s '\n ' ' ')
for word in '`data_progress` is FI_PROGRESS_MANUAL unless' \
	'Address vectors with FI_EVENT'; do
	case $words in
	*"$word"*) ;;
	*)
		echo "not ok - docs/guarantees.md does not say: $word"
		bad=1
		;;
	esac
done
[ "$(grep -c 'strcmp(name, ' \
	"${srcdir:-.}/fabtests/functional/transparent_offer.c")" = 2 ] || {
	echo "not ok - what is let pass has changed: compare it with the docs"
	bad=1
}
# Newer bases do not end all of the programs, even on both sides.
case $(FI_PROVIDER_PATH=/nowhere fi_info --version 2>/dev/null |
	sed -n 's/^libfabric: //p') in
'' | 1.*) ;;
*)
	said=$(fabtests/functional/transparent --control --seed 7 --programs 20 \
		--deadline 5000 --stop 2>&1) || {
		echo "$said" | grep -E '^# program .*(stuck|died|differ)' | head -3
		echo "SKIP: the bare base does not end the same programs twice"
		[ $bad = 1 ] || bad=77
		exit $bad
	}
	;;
esac
fabtests/functional/transparent --seed 7 --programs $fixed || bad=1
fabtests/functional/transparent --programs $new || bad=1
# Negative control: planted differences are found.
[ "${RP_LONG:-0}" != 1 ] || [ -n "${RP_SANITIZE:-}" ] ||
	"${srcdir:-.}/fabtests/functional/transparent_planted" "${srcdir:-.}" . ||
	bad=1
exit $bad
