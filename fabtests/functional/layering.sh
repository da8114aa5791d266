#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The layering of tcp in use is the base's first choice: tcp's own RDM endpoints
# if libfabric has them, else ofi_rxm.
set -u
command -v fi_info >/dev/null || {
	echo "SKIP: fi_info is missing; on Debian: apt-get install libfabric-bin"
	exit 77
}
log=$(mktemp ./layering.XXXXXX) || exit 99
trap 'rm -f "$log"' EXIT
failed=0 n=0

# layering PROGRAM CAPS: compare the program's layering with that of the base.
layering()
{
	n=$((n + 1))
	# Run fi_info without the provider, which may be built with a sanitizer.
	want=$(env -u FI_PROVIDER FI_PROVIDER_PATH=/nowhere fi_info -p tcp \
		-t FI_EP_RDM -c "$2" 2>/dev/null | sed -n 's/^provider: //p' | head -1)
	FI_LOG_LEVEL=info FI_LOG_PROV=ofi_rpmem FI_LOG_SUBSYS=domain \
		timeout 300 "fabtests/functional/$1" >"$log" 2>&1
	got=$(sed -n 's/.* is opened over \([^,]*\), .*/\1/p' "$log" |
		grep '^tcp' | sort -u | tr '\n' ' ')
	if [ -n "$want" ] && [ "$got" = "$want " ]; then
		echo "ok $n - $1 runs over $want"
	else
		echo "not ok $n - $1 runs over '$got', the base gives '$want'"
		failed=1
	fi
}

version=$(FI_PROVIDER_PATH=/nowhere fi_info --version | sed -n 's/^libfabric: //p')
layering inline 'FI_MSG|FI_TAGGED|FI_RMA'
case $version-$want in
1.1[0-9].*-'tcp;ofi_rxm' | [2-9].*-tcp)
	echo "ok 2 - as libfabric $version ought to"
	;;
*) echo "not ok 2 - libfabric $version gives $want"; failed=1 ;;
esac
n=2
layering atomic 'FI_MSG|FI_TAGGED|FI_RMA|FI_ATOMIC'
echo "1..$n"
exit $failed
