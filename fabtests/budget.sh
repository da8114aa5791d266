# SPDX-License-Identifier: BSD-2-Clause
# Compares minutes with the budget of docs/testing.md; sourced by check.sh and
# .ci/run.
# shellcheck shell=bash

# budget_line TESTING.MD PART SECONDS: print one line, and a second one if the
# part is over its budget.
budget_line() {
	awk -F ' *[|] *' -v part="$2" -v s="$3" '
		$2 == part { of = $3 }
		END {
			printf "%-28s %5.1f of %2d minutes\n", part, s / 60, of
			if (s > of * 60)
				print "OVER its budget: " part
		}' "$1"
}

# budget_sum: add up the lines of several runs (standard input) by part. Prints
# SECONDS PART.
budget_sum() {
	sed -nE 's/^(.*[^ ]) +([0-9]+\.[0-9]) of +[0-9]+ minutes$/\2 \1/p' |
		awk '{ m = $1; sub(/^[^ ]+ /, ""); if (!($0 in sum)) order[n++] = $0
			sum[$0] += m }
		END { for (i = 0; i < n; i++)
			print int(sum[order[i]] * 60 + 0.5), order[i] }'
}
