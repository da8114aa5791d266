#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# clang-tidy and cppcheck over prov, include and util; every finding counts.
set -u -o pipefail
export LC_ALL=C

usage() {
	cat <<'U'
usage: util/lint.sh [--build DIR] [--share K/N] [FILE...]

Checks the C files of prov, include and util (or only FILE...) with clang-tidy
and cppcheck, and that the old text of each named mutant (fabtests/mutation) and
of each plant of transparent_planted stands once in its source. .clang-tidy and
util/lint.cppcheck configure the tools.
util/lint.known lists false findings with the reason; an entry that no tool
reports any more counts as a finding.

  --build DIR  where config.h is (default: a folder build-check in the tree)
  --share K/N  clang-tidy reads the files that the last 50 commits changed, and
               share K of N of the others

The last line is "N passed, N failed, N skipped", one test per file and tool.
U
}

src=$(cd "$(dirname "$0")/.." && pwd)
build=$src/build-check share=
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$(cd "$2" && pwd) || exit 2; shift ;;
	--share) share=$2; shift ;;
	-h | --help) usage; exit 0 ;;
	-*) usage >&2; exit 2 ;;
	*) break ;;
	esac
	shift
done
cd "$src" || exit 1
[ -f "$build/config.h" ] || { echo "$build/config.h: configure first" >&2; exit 2; }
files=("$@")
[[ -z $share || $share =~ ^[0-9]+/[1-9][0-9]*$ ]] || { usage >&2; exit 2; }
[ $# -gt 0 ] || mapfile -t files < <(ls include/*/*.h prov/*/*.[ch] prov/verbs/preload/*.[ch] \
	util/*.[ch] util/*/*.[ch])
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0 skipped=0

flags=(-std=gnu11 -DHAVE_CONFIG_H -D_GNU_SOURCE "-DRP_PROVIDER_DIR=\"/nowhere\""
	"-I$build" -Iinclude -Iprov -Iutil -I.)

# Known false findings: CHECK, FILE, source line, reason; separated by tabs.
known=util/lint.known

# tidy FILE...: print findings as CHECK<tab>FILE<tab>LINE NUMBER<tab>MESSAGE.
# max-nodes limits the work per function, which makes the analyzer much faster.
tidy() {
	printf '%s\0' "$@" |
		xargs -0 -P 2 -n 2 sh -c 'clang-tidy-14 --quiet "$@" -- '"$(
			printf " '%s'" "${flags[@]}" -Xclang \
				-analyzer-config -Xclang max-nodes=50000
		)"' 2>/dev/null' tidy |
		sed -nE "s|^($src/)?([^: ]+):([0-9]+):[0-9]+: (warning\|error): (.*) \[([^]]+)\]\$|\6\t\2\t\3\t\5|p"
}

# cppchk FILE...: run cppcheck, with the headers whose macros it needs.
cppchk() {
	cppcheck -q -j 2 --std=c11 --library=posix,gnu --inconclusive \
		--enable=warning,performance,portability \
		--suppressions-list=util/lint.cppcheck \
		"--template={id}\t{file}\t{line}\t{message}" "${flags[@]:1}" \
		"--include=/usr/include/$(gcc -print-multiarch)/sys/queue.h" \
		--include=/usr/include/uthash.h --include=/usr/include/jansson.h \
		"$@" 2>&1
}

# judge TOOL FILE...: print the findings that are not in $known, file by file.
judge() {
	local tool=$1 f bad

	shift
	sort -u "$dir/$tool" | awk -F '\t' -v OFS='\t' -v known="$known" '
		BEGIN {
			while ((getline line < known) > 0)
				if (line !~ /^(#|$)/) {
					split(line, k, "\t")
					ok[k[1], k[2], k[3]] = 1
				}
		}
		{
			file = $2
			if (!(file in read)) {
				read[file] = 1
				for (n = 1; (getline line < file) > 0; n++) {
					gsub(/^[ \t]+|[ \t]+$/, "", line)
					text[file, n] = line
				}
			}
			key = $1 SUBSEP $2 SUBSEP text[$2, $3]
			print (key in ok ? "known" : "new"), $1, $2, $3, $4,
				text[$2, $3]
		}' >"$dir/$tool.judged"
	for f in "$@"; do
		bad=$(awk -F '\t' -v f="$f" '$1 == "new" && $3 == f {
			printf "%s:%s: %s [%s]\n\t%s\n", $3, $4, $5, $2, $6
		}' "$dir/$tool.judged")
		if [ -z "$bad" ]; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
			echo "$bad"
		fi
	done
}

# finds TOOL: check that the tool reports a memory leak in a file made for that.
finds() {
	cat >"$dir/planted.c" <<'C'
#include <stdlib.h>
int planted(int n);
int planted(int n)
{
	int *p = malloc(sizeof(*p));

	if (!p)
		return 1;
	*p = n;
	return *p;
}
C
	if $1 "$dir/planted.c" | grep -qiE 'Malloc|memleak'; then
		passed=$((passed + 1))
	else
		echo "$1 does not find a planted leak"
		failed=$((failed + 1))
	fi
}

# Choose the files for clang-tidy, which is much slower than cppcheck.
read_files=("${files[@]}")
if [ -n "$share" ]; then
	base=$(git rev-parse -q --verify HEAD~50 || git rev-list --max-parents=0 HEAD | tail -n 1)
	mapfile -t read_files < <(printf '%s\n' "${files[@]}" |
		awk -v k="${share%/*}" -v n="${share#*/}" '
			NR == FNR { changed[$1] = 1; next }
			$1 in changed || ++i % n == k % n
		' <(git diff --name-only "$base") -)
fi
sources=()
for f in "${read_files[@]}"; do
	case $f in *.c) sources+=("$f") ;; esac
done
for tool in clang-tidy-14 cppcheck; do
	command -v $tool >/dev/null && continue
	echo "SKIP $tool is not installed: apt-get install clang-tidy-14 cppcheck"
	skipped=$((skipped + 1))
done
if command -v clang-tidy-14 >/dev/null; then
	finds tidy
	[ ${#sources[@]} = 0 ] || tidy "${sources[@]}" >"$dir/tidy" || {
		echo "clang-tidy-14 failed"
		failed=$((failed + 1))
	}
	judge tidy "${read_files[@]}"
fi
if command -v cppcheck >/dev/null; then
	finds cppchk
	cppchk "${files[@]}" >"$dir/cppcheck" || {
		echo "cppcheck failed"
		failed=$((failed + 1))
	}
	judge cppcheck "${files[@]}"
fi

# Check the words of comments, names and commit titles in the whole tree.
if [ $# = 0 ]; then
	echo '/* Who finds this? */' >"$dir/words.c"
	if util/words.py "$dir/words.c" >/dev/null; then
		echo "util/words.py does not find a planted comment"
		failed=$((failed + 1))
	elif util/words.py; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
	fi
fi

# Check that the text of each named mutant occurs once in its source.
fit="python3 -B fabtests/mutation/named.py"
mkdir -p "$dir/prov/core" "$dir/fabtests/mutation/named/core"
printf 'twice\ntwice\n' >"$dir/prov/core/x.c"
printf '%s\n' '## x' 'A bug.' '--- old' twice '--- new' once \
	>"$dir/fabtests/mutation/named/core/x.mutants"
if $fit "$dir" >/dev/null; then
	echo "named.py does not find a planted mutant"
	failed=$((failed + 1))
elif $fit .; then
	passed=$((passed + 1))
else
	failed=$((failed + 1))
fi

# Check that the text of each bug that transparent_planted plants occurs once in
# its source.
if python3 -B fabtests/functional/transparent_planted --texts .; then
	passed=$((passed + 1))
else
	failed=$((failed + 1))
fi

# Report known false findings that no tool reports any more.
if [ $# = 0 ] && [ $skipped = 0 ] && [ -z "$share" ]; then
	stale=$(cut -f 2,3,6 "$dir"/*.judged | sort -u |
		awk -F '\t' 'NR == FNR { seen[$1, $2, $3] = 1; next }
			/^(#|$)/ { next }
			!(($1, $2, $3) in seen)' - "$known")
	if [ -n "$stale" ]; then
		printf 'stale in %s:\n%s\n' "$known" "$stale"
		failed=$((failed + 1))
	else
		passed=$((passed + 1))
	fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
