#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# A browser shows the report of fi_rpmem_crashtest as it was written: every
# failure, and what the tested program printed as text.
set -u
src=$(cd "${srcdir:-..}" && pwd) || exit 99
check="$src/fabtests/functional/crash_report.py"
page_dir=$PWD/fabtests/functional
page=$page_dir/crash_page
tool=$PWD/util/fi_rpmem_crashtest
dir=$(mktemp -d "$PWD/crash_report.XXXXXX") || exit 99
trap 'rm -rf "$dir"' EXIT
failed=0 n=0
cd "$dir" || exit 99

# try WHAT COMMAND...: run one test.
try()
{
	what=$1 n=$((n + 1))
	shift
	if "$@" >out 2>&1; then
		echo "ok $n - $what"
	else
		echo "not ok $n - $what"
		sed 's/^/# /' out | head -40
		failed=1
	fi
}

for kind in hostile long empty; do
	python3 "$check" make $kind $kind.json || exit 99
	"$page" $kind.json $kind.html $kind.txt || exit 99
	try "the page of a result is whole: $kind" \
		python3 "$check" page $kind.json $kind.html
done

# A real run: the page that the tool writes, and the members of its result.
victim=$page_dir/crash_victim
real()
{
	mkdir files tmp
	ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" \
		TMPDIR=$dir/tmp "$tool" --files files --images 20 --seed 7 \
		--check "'$victim' replace none check" --json real.json \
		--html real.html -- "$victim" replace none
	[ $? = 1 ] || return 1
	python3 "$check" keys real.json "$src/man/fi_rpmem_crashtest.1" &&
		python3 "$check" page real.json real.html
}
try "the result of a run has the members of the man page" real

browser=
for name in chromium-headless-shell chromium; do
	[ -n "$browser" ] || browser=$(command -v $name)
done
if [ -z "$browser" ]; then
	echo "ok $((n + 1)) - in a browser # SKIP no browser is installed;" \
		"on Debian: apt-get install chromium-headless-shell"
	exit $failed
fi

# browse FILE ARGUMENT...: open the page; its DOM is in dom, and the messages of
# the browser's console in console.
browse()
{
	file=$1
	shift
	timeout -k 10 100 "$browser" --headless --no-sandbox --disable-gpu \
		--user-data-dir="$dir/profile" --window-size=1200,1600 \
		--enable-logging=stderr "$@" "file://$dir/$file" >dom 2>log
	code=$?
	grep -a 'CONSOLE' log >console
	[ $code = 0 ] || { echo "exit status $code"; tail -5 log; return 1; }
}

# shown KIND: the page of this result shows all that it must, without an error
shown()
{
	browse "$1.html" --dump-dom || return 1
	[ ! -s console ] || { cat console; return 1; }
	python3 "$check" page "$1.json" dom
}

picture()
{
	browse hostile.html --screenshot="$dir/page.png" || return 1
	python3 "$check" picture page.png
}

# Negative control: an error of a page must have a line in console.
echo '<!DOCTYPE html><script>console.error("planted")</script>' >planted.html
planted()
{
	browse planted.html --dump-dom || return 1
	grep planted console || { cat log; return 1; }
}
try "an error of a page is noticed" planted
for kind in hostile long empty real; do
	try "a browser shows the result: $kind" shown $kind
done
try "a browser paints the result" picture
exit $failed
