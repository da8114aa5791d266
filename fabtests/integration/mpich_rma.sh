#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# mpich's tests of one-sided communication (from Debian's source package), built
# for Open MPI. A test that passes on the base must also pass on the provider.
set -u

usage() {
	cat <<'U'
usage: mpich_rma.sh [--build DIR] [--cache DIR] [--minutes N] [--seed N]
                    [--limit SECONDS] [--test NAME]... [--ways WAY,...]

  --build DIR      the build with the provider (default: the current folder)
  --cache DIR      where the tests are built once (default: ofi_rpmem in the
                   user's cache)
  --minutes N      begin no test after that, in an order that the seed makes,
                   and none that takes minutes itself
  --limit SECONDS  for one test on one side (default 60)
  --test NAME      this test only
  --ways WAY,...   base: tcp;ofi_rxm, windows by messages (osc pt2pt)
                   messages: the same over the provider
                   windows: the provider's own RMA (osc rdma, btl ofi)
                   sockets: that on libfabric's sockets
                   (default: base,messages,windows)

What passes on the base and neither as windows nor on sockets is Open MPI's own
fault (osc rdma, btl ofi), and counts as skipped.

The last line is "N passed, N failed, N skipped". The results of all are in
mpich_rma.tsv, in the current folder.
U
}

build=$PWD cache=${XDG_CACHE_HOME:-$HOME/.cache}/ofi_rpmem
minutes='' seed='' limit=60 ways=base,messages,windows
only=()
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$2; shift ;;
	--cache) cache=$2; shift ;;
	--minutes) minutes=$2; shift ;;
	--seed) seed=$2; shift ;;
	--limit) limit=$2; shift ;;
	--test) only+=("$2"); shift ;;
	--ways) ways=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
ways=${ways//,/ }
out=$PWD/mpich_rma.tsv
unset FI_PROVIDER

skip() {
	echo "ok 1 - mpich's one-sided tests # SKIP $*"
	echo "0 passed, 0 failed, 1 skipped"
	exit 0
}
for needs in mpicc mpirun xz make; do
	command -v $needs >/dev/null || skip "$needs is missing"
done

# --- build the tests once ---

# With package lists of its own: only apt uses /etc/apt.
fetch() {
	local where=$1 mirror code opts

	code=$(. /etc/os-release && echo "$VERSION_CODENAME")
	# apt's own
	mirror=$(apt-get indextargets --format '$(REPO_URI)' \
		"Created-By: Packages" "Origin: Debian" "Codename: $code" 2>/dev/null |
		head -n 1)
	mkdir -p "$where/lists/partial" "$where/cache/archives/partial" || return
	echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
		"${mirror:-http://deb.debian.org/debian} $code main" \
		>"$where/sources.list"
	opts=(-o "Dir::Etc::SourceList=$where/sources.list"
		-o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$where/lists"
		-o "Dir::Cache=$where/cache" -o APT::Sandbox::User=)
	apt-get "${opts[@]}" update -qq &&
		(cd "$where" && apt-get "${opts[@]}" source --download-only -qq \
			mpich)
}

# Names that MPI and Open MPI's header have removed: use their successors.
make_tests() {
	local where=$1

	fetch "$where" || return
	mkdir "$where/mpich" && tar -C "$where/mpich" --strip-components=1 \
		-xf "$where"/mpich_*.orig.tar.xz || return
	cd "$where/mpich/test/mpi" || return
	sed -i 's/\bMPI_Type_\(hvector\|hindexed\|struct\)\b/MPI_Type_create_\1/' \
		dtpools/src/dtpools_custom.c
	./configure -q CC=mpicc MPICC=mpicc --with-mpi=/usr --disable-fortran \
		--disable-cxx --disable-romio --disable-dependency-tracking &&
		make -s -C util libmtest_single.la && make -k -s -j2 -C rma
}

tests=$cache/mpich-rma-$(mpirun --version | sed -n 's/.* //p;q')-$(
	declare -f fetch make_tests | sha256sum | cut -c1-12)
if [ ! -e "$tests/done" ]; then
	rm -rf "$tests"
	mkdir -p "$tests" || exit 99
	(make_tests "$tests") >"$tests/log" 2>&1 || {
		tail -n 5 "$tests/log"
		skip "mpich's source package cannot be had, or built"
	}
	touch "$tests/done"
fi
rma=$tests/mpich/test/mpi/rma

# --- run one test over the base or the provider ---

tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export TMPDIR=$tmp OMPI_MCA_orte_tmpdir_base=$tmp
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_oob_tcp_if_include=lo PMIX_MCA_ptl_tcp_if_include=lo
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export FI_TCP_IFACE=lo
export FI_PROVIDER_PATH=$build/prov/rpmem/.libs
[ -e "$FI_PROVIDER_PATH/librpmem-fi.so" ] || {
	echo "there is no provider in $build" >&2
	exit 2
}

# run WAY RANKS PROGRAM ARGUMENT...: does the test pass? Its output is in
# $tmp/WAY.
run() {
	local way=$1 n=$2 prov='tcp;ofi_rpmem' osc=pt2pt btl=self

	shift 2
	case $way in
	base) prov='tcp;ofi_rxm' ;;
	sockets) prov=sockets osc=rdma btl=ofi,self ;;
	windows) osc=rdma btl=ofi,self ;;
	esac
	(cd "$rma" && FI_PROVIDER=$prov timeout -k 5 "$limit" mpirun -np "$n" \
		--mca opal_common_ofi_provider_include "$prov" \
		--mca pml cm --mca mtl ofi --mca osc $osc --mca btl $btl \
		--mca btl_ofi_progress_mode auto \
		--mca osc_rdma_acc_use_amo 0 "$@") \
		>"$tmp/$way" 2>&1 </dev/null &&
		grep -q '^ *No Errors' "$tmp/$way"
}

# Windows in shared memory do not use the network.
shared() {
	local source=$rma/$1.c

	[ -e "$source" ] || source=$rma/$(sed -n \
		"s/^$1_SOURCES *= *//p" "$rma/Makefile.am")
	case $1 in *shm* | *shared*) return 0 ;; esac
	grep -q MPI_Win_allocate_shared "$source" 2>/dev/null
}

passed=0 failed=0 skipped=0 number=0
declare -A sum
say() {
	number=$((number + 1))
	echo "$1 $number - $2"
}

# A test that fails only on one side is tried there up to three more times,
# enough to exclude chance.
steady() {
	run "$@" || run "$@" || run "$@"
}

one() {
	local name=$1 n=$2 way verdict base='' line what

	shift 2
	[ "$n" -le 4 ] || n=4
	what="$name${*:+ $*}, $n ranks"
	line="$name $*	$n"
	for way in $ways; do
		verdict=fail
		if run "$way" "$n" "./$name" "$@"; then
			verdict=pass
		elif [ "$way" != base ] && [ "$base" = pass ] &&
			steady "$way" "$n" "./$name" "$@"; then
			verdict=pass
		fi
		[ "$way" != base ] || base=$verdict
		[ $verdict = fail ] || sum[$way]=$((${sum[$way]:-0} + 1))
		line="$line	$verdict"
		[ "$way" != base ] || continue
		if [ $verdict = pass ]; then
			passed=$((passed + 1))
			say ok "$what: $way"
		elif [ "$base" != pass ]; then
			skipped=$((skipped + 1))
			say ok "$what: $way # SKIP fails on the base too"
		elif [ "$way" = windows ] &&
			! steady sockets "$n" "./$name" "$@"; then
			skipped=$((skipped + 1))
			say ok "$what: $way # SKIP so it does on sockets"
		else
			failed=$((failed + 1))
			say "not ok" "$what: $way"
			tail -n 15 "$tmp/$way"
		fi
	done
	echo "$line" >>"$out"
}

# Lines of testlist: NAME RANKS [timeLimit=N] [arg=A]...
# shellcheck disable=SC2086 # ways are words
printf 'test\tranks%s\n' "$(printf '\t%s' $ways)" >"$out"
left=0
while read -r name n rest; do
	args=()
	if [ ${#only[@]} -gt 0 ]; then
		case " ${only[*]} " in *" $name "*) ;; *) continue ;; esac
	fi
	shared "$name" && continue
	[ -x "$rma/$name" ] || continue
	if [ -n "$minutes" ] && [ $SECONDS -ge $((minutes * 60)) ]; then
		left=$((left + 1))
		continue
	fi
	for word in $rest; do
		case $word in arg=*) args+=("${word#arg=}") ;; esac
	done
	one "$name" "$n" ${args[0]:+"${args[@]}"}
done < <(grep -E '^[a-z]' "$rma/testlist" |
	if [ -n "$minutes" ]; then
		# Tests that take minutes run only if enough time is left.
		grep -v 'timeLimit=[3-9]..' | shuf --random-source=<(yes "${seed:-$(date +%F)}")
	else
		cat
	fi)
if [ $left -gt 0 ]; then
	skipped=$((skipped + 1))
	say ok "$left more tests # SKIP no time left"
fi
for way in $ways; do
	echo "# $way: ${sum[$way]:-0} passed"
done
echo "1..$number"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
