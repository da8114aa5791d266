#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The metrics of a daemon have the format of Prometheus, and alerts and dashboard
# use metrics that exist: promtool checks metrics and rules.
set -u
# shellcheck source=fabtests/functional/suite.sh
. "${srcdir:-.}/fabtests/functional/suite.sh"
enter promtool
head -c 300000 /dev/urandom >file
serve --create 1M --port 0 vol
class=power
grep -q '^vol .* power ' daemon.out || class=none
../util/fi_rpmem_cp --quiet --class $class file "127.0.0.1:$P:vol" ||
	fail "no copy"
../util/fi_rpmem_info --stats=$daemon --prometheus >prom
grep -q '^ofi_rpmem_commit_seconds_count{.*,pool="vol",.*} [1-9]' prom ||
	fail "no commit is in the metrics"

# An alert on a misspelt metric would never fire: compare all names.
cat "$src/docs/alerts.yml" "$src/docs/dashboard.json" |
	grep -o 'ofi_rpmem_[a-z_]*' | sed 's/_bucket$//; s/_count$//' | sort -u >used
grep '^# TYPE' prom | cut -d' ' -f3 | sort >made
[ -s used ] || fail "no metric in alerts and dashboard"
unknown=$(comm -23 used made)
[ -z "$unknown" ] || fail "alerts or dashboard name metrics that do not exist: $unknown"
if ! command -v promtool >/dev/null; then
	[ $failed = 0 ] || exit 1
	echo "SKIP: promtool is not here (util/check.sh --platform unpacks it)"
	exit 77
fi
# checks WHAT COMMAND...: promtool finds no error
checks()
{
	what=$1
	shift
	promtool "$@" <prom >out 2>&1 || fail "$what: $(cat out)"
	sed 's/^/# /' out
}
checks "the format of the metrics" check metrics
checks "the alerts" check rules "$src/docs/alerts.yml"
checks "where an alert fires or is silent" test rules \
	"$src/fabtests/functional/alerts_test.yml"
exit $failed
