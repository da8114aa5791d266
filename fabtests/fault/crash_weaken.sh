#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# The valid pairs of crash_matrix.sh while a fact of the target weakens, with
# and without connected endpoints: one pair in sixteen, chosen by the time. Of
# crash_shim.sh, whose runs are shorter, one pair in four.
# A pair that the provider would refuse has no weakening; the number of the
# others is written here, so that none can drop out unseen.
export RP_CRASH_RANDOM=1000
matrix=${srcdir:-.}/fabtests/fault/crash_matrix.sh
share=16 shim_share=4
[ "${RP_LONG:-0}" = 1 ] && share=1 shim_share=1

# weaken PAIRS OPTION...
weaken()
{
	pairs=$1 status=0
	shift
	said=$("$matrix" "$@" --weaken) || status=$?
	echo "$said"
	[ $status = 0 ] || exit $status
	case $said in *" $pairs weaken, "*) ;; *)
		echo "not ok: $pairs valid pairs were to weaken"
		exit 1
		;;
	esac
}

weaken 314 crash_matrix --share $share
weaken 314 crash_matrix --share $share --connected
# Only a build with libibverbs has the verbs shim.
[ ! -x fabtests/fault/crash_shim ] ||
	weaken 175 crash_shim --share $shim_share
