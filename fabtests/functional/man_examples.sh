#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The examples of the man pages and of libibvrpmem compile and link as printed,
# the one complete example runs, and the table of errors matches the code.
set -u
src=${srcdir:-.}
cc=${CC:-cc}
provider=$PWD/prov/rpmem/.libs
libs=$(pkg-config --cflags --libs libfabric) || exit 99
dir=$(mktemp -d ./man_examples.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
# shellcheck source=fabtests/functional/suite.sh
. "$src/fabtests/functional/suite.sh"

# compile PAGE OUTPUT FLAG...: compile the example of a page
compile()
{
	page=$1
	out=$2
	shift 2
	example "$page" >"$out.c"
	if ! [ -s "$out.c" ]; then
		fail "$page has no example"
		return 1
	fi
	# shellcheck disable=SC2086 # flags are lists
	$cc ${CFLAGS:-} -std=gnu11 -Wall -Wextra -Werror \
		-Wno-unused-parameter -I"$src/include" "$@" \
		-o "$out" "$out.c" $libs || fail "example of $page"
}

pages=0
for page in "$src"/man/fi_*.3; do
	pages=$((pages + 1))
	compile "$page" "$dir/$(basename "$page").so" -shared -fPIC
done
[ $pages -ge 2 ] || fail "only $pages pages of section 3 in $src/man"

# Programs in C++ can include the header, too.
if command -v "${CXX:-c++}" >/dev/null; then
	# shellcheck disable=SC2086 # flags are lists
	echo '#include <rdma/fi_ext_rpmem.h>' | ${CXX:-c++} -x c++ -Wall -Wextra \
		-Werror -I"$src/include" $libs -fsyntax-only - ||
		fail "the header as C++"
fi

# The pages of the shim, if the shim is built; each of its calls has a page.
if [ -e prov/verbs/.libs/libibvrpmem.so ]; then
	libs=$(pkg-config --cflags --libs libibverbs)
	shim_pages=$(grep -l infiniband/rpmem.h "$src"/man/*.3)
	for page in $shim_pages; do
		compile "$page" "$dir/$(basename "$page").so" -shared -fPIC
	done
	for f in "$src"/docs/examples/*.c; do
		# readme_example.sh, log.sh, raft.sh, rpc.sh, kv_lives.sh,
		# pool.sh and persist.sh compile the examples that are left out
		# here.
		case ${f##*/} in kv_*.c | durable.c | log.c | raft_kv.c | rpc_client.c | rpc_server.c | mpi_window.c | pool.c | server.c | client.c) continue ;; esac
		# FLUSH came with rdma-core 45.
		! grep -q ibv_wr_flush "$f" ||
			grep -q HAVE_IBV_WR_FLUSH.1 config.h || continue
		# shellcheck disable=SC2086 # flags are lists
		$cc ${CFLAGS:-} -D_GNU_SOURCE -Wall -Wextra -Werror \
			-I"$src/include" -o "$dir/example" "$f" \
			-Lprov/verbs/.libs -libvrpmem $libs || fail "$f"
	done
	libs=$(pkg-config --cflags --libs libfabric)
	sed -n 's/^\.Nm \(rpmem_[a-z_]*\).*/\1/p' $shim_pages |
		sort -u >"$dir/page"
	grep -o 'rpmem_[a-z_]*(struct' "$src/include/infiniband/rpmem.h" |
		sed 's/(.*//' | sort -u >"$dir/header"
	nm -D --defined-only prov/verbs/.libs/libibvrpmem.so |
		sed -n 's/.* T //p' | sort >"$dir/code"
	diff "$dir/page" "$dir/header" || fail "pages and infiniband/rpmem.h differ"
	diff "$dir/code" "$dir/header" || fail "libibvrpmem and its header differ"
fi

if compile "$src/man/fi_rpmem.7" "$dir/durable" &&
   [ -x "$dir/durable" ] && [ -e "$provider/librpmem-fi.so" ]; then
	# The example closes nothing before exit(), which a leak checker would
	# report.
	says=$(FI_PROVIDER_PATH=$provider FI_TCP_IFACE=lo \
		ASAN_OPTIONS=detect_leaks=0 \
		timeout 60 "$dir/durable" "$dir/pool" 2>&1)
	[ "$says" = "on the medium" ] || fail "fi_rpmem.7 example says: $says"
	[ "$(head -n 1 "$dir/pool" | tr -d '\0')" = durable ] ||
		fail "fi_rpmem.7 example left no text in its pool"
fi

# Errors, from page and code, as lines of "NUMBER CATEGORY ERRNO Name. Remedy".
awk '/^\.It [0-9]* Pq Dv FI_RPMEM_ST_/ {
	if (line) print line
	line = $2 " " $5 " " $8; next }
     /^\./ { if (line) print line; line = ""; next }
     line { line = line " " $0 }' "$src/man/fi_rpmem.7" | sort -n >"$dir/page"
fabtests/functional/man_statuses | sort -n >"$dir/code"
diff "$dir/page" "$dir/code" || fail "fi_rpmem.7 and core/status.c differ"
[ -s "$dir/code" ] || fail "man_statuses printed nothing"

# Every category has the header's name and number in the page.
sed -n 's/^\tFI_RPMEM_ST_\([A-Z_]*\) = \([1-9][0-9]*\),.*/\2 \1/p' \
	"$src/include/rdma/fi_ext_rpmem.h" | sort -n >"$dir/header"
sed -n 's/^\.It Dv FI_RPMEM_ST_\([A-Z_]*\) Pq \([0-9]*\)$/\2 \1/p' \
	"$src/man/fi_rpmem.7" | sort -n >"$dir/page"
diff "$dir/page" "$dir/header" || fail "fi_rpmem.7 and the header differ"

# The page lists exactly the parameters that the provider reads.
sed -n 's/^\t{"\([a-z_]*\)", FI_PARAM_.*/FI_OFI_RPMEM_\U\1/p' \
	"$src/prov/rpmem/init.c" | sort >"$dir/code"
sed -n 's/^\.It Ev \(FI_OFI_RPMEM_[A-Z_]*\)$/\1/p' "$src/man/fi_rpmem.7" |
	sort >"$dir/page"
[ -s "$dir/code" ] || fail "no parameters in init.c"
diff "$dir/page" "$dir/code" || fail "fi_rpmem.7 and init.c differ"
sed -n 's/^| \(FI_OFI_RPMEM_[A-Z_]*\) |.*/\1/p' "$src/docs/operating.md" |
	sort >"$dir/page"
diff "$dir/page" "$dir/code" || fail "docs/operating.md and init.c differ"

# The pages' claims about calls, as far as one process can test them. The
# program prints TAP lines itself.
fabtests/functional/man_claims "$dir" "$dir/fi_rpmem_commit.3.so" ||
	fail "claims do not hold"

exit $failed
