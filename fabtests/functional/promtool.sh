#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The metrics of a daemon have the format of Prometheus, and alerts and dashboard
# use metrics that exist: promtool checks metrics, rules and the dashboard's
# expressions.
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
# The dashboard as Grafana reads it: JSON, panels, and expressions. Rules that record
# each expression are for promtool, to which JSON is YAML.
if command -v python3 >/dev/null; then
	python3 - "$src/docs/dashboard.json" panels.rules >out 2>&1 <<'P' ||
import json, re, sys

with open(sys.argv[1], encoding="utf-8") as f:
    board = json.load(f)
variables = {v["name"] for v in board["templating"]["list"]}
panels = board["panels"]
assert panels and len({p["id"] for p in panels}) == len(panels), "ids"
rules = []
for panel in panels:
    assert panel["type"] and panel["title"] and panel["targets"], panel
    refs = [t["refId"] for t in panel["targets"]]
    assert len(set(refs)) == len(refs), f"{panel['title']}: refIds {refs}"
    for target in panel["targets"]:
        expr = target["expr"].replace("$__rate_interval", "5m")
        for name in re.findall(r"\$\{?(\w+)", expr):
            assert name in variables, f"no variable ${name}: {expr}"
        # Brackets outside of strings are closed in the order of opening.
        open_ones = []
        bare = re.sub(r'"(\\.|[^"\\])*"', "", expr)
        assert '"' not in bare, f"an open string: {expr}"
        for c in re.findall(r"[][(){}]", bare):
            if c in "([{":
                open_ones.append(")]}"["([{".index(c)])
            else:
                assert open_ones and open_ones.pop() == c, f"brackets: {expr}"
        assert not open_ones, f"brackets: {expr}"
        rules.append({"record": f"panel:{len(rules)}",
                      "expr": re.sub(r"\$\{?\w+\}?", "x", expr)})
with open(sys.argv[2], "w", encoding="utf-8") as f:
    json.dump({"groups": [{"name": "panels", "rules": rules}]}, f)
print(f"{len(panels)} panels, {len(rules)} expressions")
P
		fail "dashboard.json: $(tail -n 1 out)"
	sed 's/^/# /' out
fi
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
[ ! -e panels.rules ] || checks "the dashboard" check rules panels.rules
checks "where an alert fires or is silent" test rules \
	"$src/fabtests/functional/alerts_test.yml"
exit $failed
