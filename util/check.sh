#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs the packages that the tests need, builds the project, and runs the tests.
set -u -o pipefail

usage() {
	cat <<'U'
usage: util/check.sh [OPTION...]
       util/check.sh --only REGEX
       util/check.sh --quick

Without an option, this script installs the Debian packages that the tests
need, builds the project in build-check, runs all suites of tests, changes the
source in ways that the suites must notice (mutations), runs MPI jobs, and
analyses the source (clang-tidy, cppcheck).

To run less:
  --only REGEX     only the suites whose names match REGEX, for example
                   'unit/test_ring$' or functional/order
  --quick          for use before a commit: the suites of fabtests/unit and of
                   the list fabtests/quick; then, of the files that differ from
                   HEAD, format, words, static analysis and named mutations
  --share K/N      part K (0 to N-1) of N equal parts of the mutations and of
                   the bugs that fabtests/fault/crash_planted.sh plants; of the
                   list fabtests/rotated, only suites with the number K modulo 5

To run more:
  --long           more rounds of the fault, crash and mutation tests; Debian
                   packages are built and used: takes hours
  --clang          a second build, by clang
  --databases      PostgreSQL, Redis and etcd on a pool, through power cuts;
                   needs root
  --vm             tests in a virtual machine with emulated persistent memory
                   and an emulated RDMA device; with --long, of two Debian
                   releases
  --domain NAME    with --vm: only one persistence domain, adr or eadr
  --platform NAME  build and test in a root directory of another Debian release
                   too (NAME: trixie); test fi_rpmemd as a service of systemd
  --fabtests DIR   with --platform: run libfabric's own fabtests, built in DIR
  --all            --long --vm --platform trixie --databases --clang

Other options:
  --sanitize KIND  build with a sanitizer, address or thread, and run only the
                   suites
  --build DIR      build in DIR, not in build-check (build-check-KIND with
                   --sanitize)
  --cache DIR      keep the images of virtual machines and root directories in
                   DIR, not in ~/.cache/ofi_rpmem
  --help           print this text

One line is printed for each suite or check when it ends. The last line has the
sums, "N passed, N failed, N skipped". The exit status is 0 if nothing failed.
U
}

# The verbs provider of libfabric reads all of /proc/kallsyms twice in each
# process, which takes longer than most tests. So root runs this script in a mount
# namespace in which that file is empty.
if [ -z "${RP_CHECK_APART:-}" ] && [ "$(id -u)" = 0 ] &&
	unshare --mount true 2>/dev/null; then
	# shellcheck disable=SC2016
	RP_CHECK_APART=1 exec unshare --mount sh -c \
		'mount --bind /dev/null /proc/kallsyms; exec "$@"' sh bash "$0" "$@"
fi

src=$(cd "$(dirname "$0")/.." && pwd)
build= long= vm= sanitize= cache= platform= fabtests= only= quick= domain=
RP_SHARE= clang= databases=
while [ $# -gt 0 ]; do
	case $1 in
	--clang) clang=1 ;;
	--databases) databases=1 ;;
	--only) only=$2; shift ;;
	--quick) quick=1 ;;
	--domain) domain=$2; shift ;;
	--share) export RP_SHARE=$2; shift ;;
	--long) long=1 ;;
	--vm) vm=1 ;;
	--platform) platform=$2; shift ;;
	--fabtests) fabtests=$2; shift ;;
	--all) long=1 vm=1 platform=trixie clang=1 databases=1 ;;
	--sanitize) sanitize=$2; shift ;;
	--build) build=$2; shift ;;
	--cache) cache=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	*) usage >&2; exit 2 ;;
	esac
	shift
done
build=${build:-$src/build-check${sanitize:+-$sanitize}}

# shellcheck source=util/packages.sh
. "$src/util/packages.sh"
# shellcheck source=util/trust.sh
. "$src/util/trust.sh"
# shellcheck source=fabtests/tally.sh
. "$src/fabtests/tally.sh"
# shellcheck source=fabtests/budget.sh
. "$src/fabtests/budget.sh"
# shellcheck disable=SC2086
packages_install $PKG_BUILD $PKG_TEST || exit 1
# The guest and platform stages report a package that could not be installed.
# shellcheck disable=SC2086
[ -z "$vm$platform" ] || packages_install $PKG_VM
# The browser is large, and only the report of fi_rpmem_crashtest is shown in it.
[ -z "$platform$long" ] || packages_install "$PKG_BROWSER"
unpacked=${cache:-${XDG_CACHE_HOME:-$HOME/.cache}/ofi_rpmem}
if { [ -n "$platform$long" ] || compgen -G "$unpacked/$PKG_METRICS-*" >/dev/null; } &&
	! command -v promtool >/dev/null; then
	promtool=$(packages_unpack "$PKG_METRICS" /usr/bin/promtool "$unpacked") &&
		PATH=$PATH:$(dirname "$promtool")
fi
# shellcheck disable=SC2086
[ -z "$databases" ] || packages_install $PKG_DATABASES
if [ -n "$databases" ] && [ ! -e /usr/share/libvirt/schemas/domain.rng ]; then
	RP_LIBVIRT_SCHEMAS=$(packages_unpack "$PKG_LIBVIRT" /usr/share/libvirt/schemas \
		"$unpacked") && export RP_LIBVIRT_SCHEMAS
fi

passed=0 failed=0 skipped=0 left_out= progress=
# $begun is the start time after the installation; $crash, $guest, $mpi and $other
# are the seconds of parts of the budget, whose part "build and core" is the rest.
begun=$SECONDS crash=0 guest= mpi=0 other=

# suite NAME PASSED FAILED SKIPPED SECONDS: print the result of a suite or check as
# one line, and add it to the sums.
suite() {
	printf '%-38s %5d passed %4d failed %4d skipped %5ds%s\n' "$@" "$progress"
	passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
	case $1 in
	fabtests/fault/crash_* | mutations*) crash=$((crash + $5)) ;;
	fabtests/integration/* | mpi* | databases) mpi=$((mpi + $5)) ;;
	guest*) guest=$((guest + $5)) ;;
	platform*) other=$((other + $5)) ;;
	esac
}

# Print the minutes of each part beside its budget in docs/testing.md. Runs with
# --long, --only or --quick have no budgets.
budget() {
	local all=$((SECONDS - begun)) doc=$src/docs/testing.md

	[ -z "$long$only$quick" ] || return
	if [ -n "$sanitize" ]; then
		budget_line "$doc" sanitizers $all
	else
		budget_line "$doc" "build and core" \
			$((all - crash - guest - mpi - other))
		budget_line "$doc" "crash matrix and mutations" $crash
		[ -z "$guest" ] || budget_line "$doc" "guest" "$guest"
		[ -z "$other" ] || budget_line "$doc" "second platform" "$other"
		budget_line "$doc" "MPI and databases" $mpi
	fi
}

# step NAME COMMAND...: run a step of the build, and report it as one test.
step() {
	local name=$1 start=$SECONDS log="$build/step.log"

	shift
	if ("$@") >"$log" 2>&1; then
		suite "$name" 1 0 0 $((SECONDS - start))
	else
		tail -40 "$log"
		suite "$name" 0 1 0 $((SECONDS - start))
		return 1
	fi
}

# Print the sums, and exit with their status.
finish() {
	budget
	[ -z "$left_out" ] || echo "left out:$left_out"
	echo "$passed passed, $failed failed, $skipped skipped"
	[ "$failed" = 0 ]
	exit
}

mkdir -p "$build" || exit 1
cflags="-O2 -g"
env=()
case $sanitize in
'') ;;
address)
	cflags="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
	# The sanitizer runtime must precede all other preloaded libraries.
	env+=("RP_PRELOAD=$(gcc -print-file-name=libasan.so):"
		ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:abort_on_error=0
		"LSAN_OPTIONS=suppressions=$src/fabtests/suppress.lsan:print_suppressions=0") ;;
thread)
	cflags="-O1 -g -fsanitize=thread -fno-omit-frame-pointer"
	env+=("RP_PRELOAD=$(gcc -print-file-name=libtsan.so):"
		"TSAN_OPTIONS=suppressions=$src/fabtests/suppress.tsan:history_size=7") ;;
*) echo "unknown sanitizer $sanitize: address or thread" >&2; exit 2 ;;
esac

# Let configure write libtool, the shell script that builds each library and
# program, for dash: it is faster than bash.
configure() {
	CONFIG_SHELL=$(command -v dash || command -v sh) "$src/configure" -q "$@"
}

configure_build() {
	[ -x "$src/configure" ] && [ "$src/configure" -nt "$src/configure.ac" ] ||
		"$src/autogen.sh" || return
	cd "$build" || return
	[ -f config.status ] && [ config.status -nt "$src/configure" ] ||
		configure CFLAGS="$cflags" || return
}
step "configure" configure_build || finish
cd "$build" || exit 1
step "build (gcc)" make -s -j2 || finish
# $tests has the names of the suites to run, as `make list-tests` prints them. An
# empty list means all suites.
tests=()
if [ -n "$only" ]; then
	mapfile -t tests < <(make -s list-tests | grep "^fabtests/" |
		grep -E -- "$only")
	[ ${#tests[@]} -gt 0 ] || {
		echo "no suite matches $only; make list-tests prints all" >&2
		exit 2
	}
elif [ -n "$quick" ]; then
	mapfile -t tests < <(make -s list-tests |
		grep -E '^fabtests/unit/'; grep -v '^#' "$src/fabtests/quick")
elif [ -n "$RP_SHARE" ]; then
	rotated=$(sed -n 's/^[0-4] //p' "$src/fabtests/rotated")
	others=$(sed -n "/^$((${RP_SHARE%/*} % 5)) /d; s/^[0-4] //p" "$src/fabtests/rotated")
	mapfile -t tests < <(make -s list-tests | grep "^fabtests/")
	gone=$(grep -vxF "$(printf '%s\n' "${tests[@]}")" <<<"$rotated")
	if [ -n "$gone" ]; then
		echo "fabtests/rotated: no such suite: ${gone//$'\n'/ }" >&2
		suite "fabtests/rotated" 0 1 0 0
	fi
	mapfile -t tests < <(printf '%s\n' "${tests[@]}" | grep -vxF "$others")
	left_out="$left_out $(wc -l <<<"$others") suites of other shares;"
fi
# --only builds just the chosen suites if all are compiled programs; a script may
# run any program, so for a script everything is built.
programs=()
case ${only:+${tests[*]}} in
'' | *.sh*) programs=(check TESTS=) ;;
*) programs=("${tests[@]}") ;;
esac
step "build tests" make -s -j2 "${programs[@]}" || finish

if [ -n "$clang" ]; then
	clang_build() {
		mkdir -p "$build/clang" && cd "$build/clang" || return
		[ -f config.status ] || configure CC=clang-14 CFLAGS=-O1 || return
		make -s -j2 && make -s -j2 check TESTS=
	}
	step "build (clang)" clang_build
fi

# Tests keep their files in the build directory.
trust_folder util/fi_rpmem_info . || { failed=$((failed + 1)); finish; }

# seconds LOG: print the duration of a suite, from the creation of its log to the
# last write to the log.
seconds() {
	local born end

	born=$(stat -c %W "$1") end=$(stat -c %Y "$1")
	[ "$born" -gt 0 ] && [ "$end" -ge "$born" ] && echo $((end - born)) ||
		echo 0
}

# print_failure NAME LOG: print the lines of a log that name failures, then the
# end of the log.
print_failure() {
	echo "--- $1"
	grep -anE '^not ok|^FAIL: |^SUMMARY: |^=+[0-9]*=+ ?ERROR' "$2" | head -20
	echo "--- end of the log"
	tail -60 "$2"
	echo "---"
}

# report NAME: print the result of a suite that has ended, and what failed or was
# skipped in it.
report() {
	local out=$1.log p f s

	tally "$1" # sets p, f and s
	suite "$1" "$p" "$f" "$s" "$(seconds "$out")"
	[ "$f" = 0 ] || print_failure "$1" "$out"
	[ "$s" = 0 ] || grep -aE '# SKIP|^SKIP' "$out" | head -5
}

# Print the names of the suites that have ended: automake's test driver has written
# the last line of their .trs files.
ended() {
	grep -lsr --include='*.trs' '^:copy-in-global-log:' fabtests |
		sed 's/\.trs$//' | sort
}

# Let make run the suites in the background, and report each suite when it ends.
run_tests() {
	local start=$SECONDS n=0 all=${#tests[@]} name running=1 pid
	local -a some=()
	local -A seen=()

	export RP_LONG=${long:-0}
	if [ "$all" = 0 ]; then
		all=$(make -s list-tests | grep -c '^fabtests/')
	else
		some=(TESTS="${tests[*]}" check_PROGRAMS= check_LTLIBRARIES=
			check_LIBRARIES=)
	fi
	find fabtests -name '*.trs' -o -name '*.log' | xargs -r rm -f
	env "${env[@]}" make -s -j2 check RP_SANITIZE="$sanitize" "${some[@]}" \
		>"$build/check.log" 2>&1 &
	pid=$!
	# Look for ended suites once more after the end of make.
	while [ -n "$running" ]; do
		kill -0 $pid 2>/dev/null || running=
		for name in $(ended); do
			[ -z "${seen[$name]-}" ] || continue
			seen[$name]=1 n=$((n + 1))
			progress="  ($n of $all)"
			report "$name"
		done
		[ -z "$running" ] || sleep 1
	done
	progress=
	wait $pid
	if [ "$n" != "$all" ] || [ "$n" = 0 ]; then
		echo "$((all - n)) suites did not run:"
		tail -20 "$build/check.log"
		suite "suites that did not run" 0 $((all > n ? all - n : 1)) 0 0
	fi
	echo "tests took $((SECONDS - start)) s"
}
run_tests
[ -z "$only" ] || finish

# Check the files that differ from HEAD: their format, words and named mutants, and
# static analysis.
changed() {
	local f log="$build/changed.log" start=$SECONDS p=0 n=0
	local -a files c

	cd "$src" || return
	mapfile -t files < <(git diff --name-only --diff-filter=d HEAD &&
		git ls-files --others --exclude-standard)
	for f in "${files[@]}"; do
		case $f in
		*.[ch])
			n=$((n + 1))
			clang-format-14 --dry-run -Werror "$f" && p=$((p + 1))
			;;
		esac
	done
	suite "format" $p $((n - p)) 0 $((SECONDS - start))
	start=$SECONDS
	if [ ${#files[@]} = 0 ] || util/words.py "${files[@]}"; then
		suite "words" 1 0 0 $((SECONDS - start))
	else
		suite "words" 0 1 0 $((SECONDS - start))
	fi
	mapfile -t c < <(printf '%s\n' "${files[@]}" |
		grep -E '^(prov|include|util)/.*\.[ch]$')
	[ ${#c[@]} = 0 ] || lint "${c[@]}"
	for f in "${c[@]}"; do
		local m=${f#prov/}
		m=${m#util/}
		[ -f "fabtests/mutation/named/${m%.c}.mutants" ] || continue
		start=$SECONDS
		fabtests/mutation/mutate --only . --file "${f##*/}" -j 2 >"$log" 2>&1
		read -r p n _ <<<"$(grep "^named: " "$log" |
			sed 's/[^0-9]\+/ /g')"
		suite "mutations (${f##*/})" "${p:-0}" "${n:-1}" 0 $((SECONDS - start))
		[ "${n:-1}" = 0 ] || grep -v '^killed' "$log"
	done
	cd "$build" || return
}

# kills.sh runs MPI jobs and kills their ranks. It mostly waits, so it runs in the
# background, beside what follows.
kills_minutes=5
[ -z "$long" ] || kills_minutes=60
kills=
if [ -z "$sanitize$quick" ]; then
	"$src/fabtests/integration/kills.sh" --build "$build" \
		--minutes "$kills_minutes" >"$build/kills.out" 2>&1 &
	kills=$!
fi
# Wait for the end of kills.sh, and print its output.
kills_end() {
	wait "$kills"
	cat "$build/kills.out"
}

# Run the mutation tests: each breaks the source in one place, and passes if a suite
# then fails.
mutations() {
	local log="$build/mutate.log" seed kind p f s of=${RP_SHARE#*/}
	local -a what=(--named --sample $((60 / ${of:-1})))

	[ -z "$RP_SHARE" ] || what+=(--share "$RP_SHARE")
	[ -z "$long" ] || what=(--long)
	# The seed chooses the places; it changes with each commit.
	seed=$(git -C "$src" log -1 --format=%ct 2>/dev/null) ||
		seed=$(date +%Y%m%d)
	"$src/fabtests/mutation/mutate" "${what[@]}" -j 2 --seed "$seed" \
		>"$log" 2>&1
	for kind in named mechanical; do
		read -r p f s <<<"$(grep "^$kind: " "$log" |
			sed 's/[^0-9]\+/ /g')"
		# Without a line of sums, mutate itself failed: one failure.
		suite "mutations ($kind)" "${p:-0}" "${f:-1}" 0 "${s:-0}"
	done
	grep -vE '^(killed |named:|mechanical:)' "$log"
}
[ -n "$sanitize$quick" ] || mutations

# lint [FILE...]: run static analysis over these files, or over all.
lint() {
	local log="$build/lint.log" start=$SECONDS p f s

	"$src/util/lint.sh" --build "$build" ${RP_SHARE:+--share "$RP_SHARE"} "$@" \
		>"$log" 2>&1
	read -r p f s <<<"$(grep -E '^[0-9]+ passed, ' "$log" |
		sed 's/[^0-9]\+/ /g')"
	# Without a line of sums, lint.sh itself failed: one failure.
	suite "clang-tidy, cppcheck" "${p:-0}" "${f:-1}" "${s:-0}" \
		$((SECONDS - start))
	grep -vE '^[0-9]+ passed, ' "$log"
}
if [ -n "$quick" ]; then
	changed
	finish
fi
[ -n "$sanitize" ] || lint

# stage NAME SCRIPT ARGUMENT...: run a script that prints "ok" or "not ok" for each
# test and a last line with the sums; report it as one suite.
stage() {
	local name=$1 log="$build/${1// /-}.log" start=$SECONDS p f s

	shift
	"$@" >"$log" 2>&1
	read -r p f s <<<"$(grep -E '^[0-9]+ passed, ' "$log" |
		sed 's/[^0-9]\+/ /g')"
	# Without a line of sums, the script was cut off: one failure.
	suite "$name" "${p:-0}" "${f:-1}" "${s:-0}" $((SECONDS - start))
	grep -E '^not ok|# SKIP' "$log"
	[ "${f:-1}" = 0 ] || grep -vE '^(not )?ok ' "$log" | tail -60
}

# Run mpich's tests of one-sided MPI: all with --long, otherwise as many as one
# minute allows; the time of the last commit is the seed that chooses them.
mpich() {
	local -a what=(--build "$build" ${cache:+--cache "$cache"})

	[ -n "$long" ] || what+=(--minutes 1 --seed "$(git -C "$src" log -1 \
		--format=%ct 2>/dev/null || date +%F)")
	stage "mpich one-sided" "$src/fabtests/integration/mpich_rma.sh" "${what[@]}"
}
[ -n "$sanitize" ] || mpich

[ -n "$sanitize" ] || stage "mpi kills" kills_end

if [ -n "$databases" ] && [ -z "$sanitize" ]; then
	stage "databases" "$src/fabtests/integration/databases.sh" \
		--build "$build" ${long:+--long}
else
	left_out="$left_out --databases"
fi

# Run the tests in a virtual machine, the guest: it has libibverbs over an emulated
# device, DAX, and both persistence domains.
guest() {
	local -a what=(--build "$build/guest" ${cache:+--cache "$cache"})
	local -a all=(--platform trixie)

	[ -z "$long" ] || all+=(--platform bookworm --long)
	[ -z "$domain" ] || all+=(--domain "$domain")
	stage "guest" "$src/fabtests/vm/guest.sh" "${what[@]}" "${all[@]}"
	# planted.sh lets the guest fail, hang and die, and passes if guest.sh reports
	# that. It runs for one persistence domain only.
	[ "$domain" = eadr ] ||
		stage "guest planted" "$src/fabtests/vm/planted.sh" "${what[@]}"
}
if [ -n "$vm" ] && [ -z "$sanitize" ]; then
	guest
else
	left_out="$left_out --vm (guest)"
fi

# Build and test with libfabric, rdma-core and the compiler of another Debian
# release, in a root directory of its own.
platform() {
	local -a what=(--suite "$platform" --host "$build" --build "$build/platform")

	stage "platform $platform" "$src/fabtests/platform/platform.sh" "${what[@]}" \
		${cache:+--cache "$cache"} ${fabtests:+--fabtests "$fabtests"} \
		${long:+--long}
}
if [ -n "$platform" ] && [ -z "$sanitize" ]; then
	platform
else
	left_out="$left_out --platform (trixie)"
fi
# Run fi_rpmemd as a service of bookworm's systemd, with --long also of trixie's.
if [ -n "$platform$long" ] && [ -z "$sanitize" ]; then
	for suite in bookworm ${long:+trixie}; do
		stage "platform service $suite" \
			"$src/fabtests/platform/service.sh" --suite "$suite" \
			--host "$build" --build "$build/service-$suite" \
			${cache:+--cache "$cache"}
	done
fi
# Build the Debian packages of both releases, use them in new root directories, and
# start their unit by systemd.
if [ -n "$long" ] && [ -z "$sanitize" ]; then
	for suite in bookworm trixie; do
		stage "packages $suite" "$src/util/package.sh" --suite $suite \
			--out "$build/packages-$suite"
		stage "packages $suite, service" \
			"$src/fabtests/platform/service.sh" --suite $suite \
			--packages "$build/packages-$suite/packages" \
			--host "$build" --build "$build/packages-$suite/service" \
			${cache:+--cache "$cache"}
	done
fi
[ -n "$clang" ] || left_out="$left_out --clang"
[ -n "$long" ] || left_out="$left_out --long (longer fault and crash runs)"
finish
