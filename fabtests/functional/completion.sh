#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# bash and zsh complete every option that --help prints, and what follows one.
set -u
src=$(cd "${srcdir:-..}" && pwd) || exit 99
dir=$(mktemp -d ./completion.XXXXXX) || exit 99
trap 'rm -rf "$dir"' EXIT
tools='fi_rpmemd fi_rpmem_cp fi_rpmem_info fi_rpmem_bench fi_rpmem_group fi_rpmem_plugpull fi_rpmem_crashtest'
failed=0 n=0
PATH=$PWD/util:$PATH
export PATH

# result NAME WANT GOT: compare two files of words, one in each line.
result()
{
	n=$((n + 1))
	sort -u "$2" >"$dir/want.sorted"
	sort -u "$3" | sed '/^$/d' >"$dir/got.sorted"
	if [ -s "$2" ] && diff "$dir/want.sorted" "$dir/got.sorted" >"$dir/diff"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		sed 's/^/# /' "$dir/diff"
		failed=1
	fi
}

# Each installed program has a completion.
for tool in util/fi_rpmem*; do
	[ -x "$tool" ] && [ -f "$tool" ] && echo "${tool#util/}"
done >"$dir/want"
sed -n '/^complete /,$p' "$src/util/completion/fi_rpmem.bash" |
	tr '\t ' '\n\n' | grep '^fi_' >"$dir/got"
result "bash knows all tools" "$dir/want" "$dir/got"
sed -n '1s/^#compdef //p' "$src/util/completion/_fi_rpmem" | tr ' ' '\n' >"$dir/got"
result "zsh knows all tools" "$dir/want" "$dir/got"

# options TOOL: print the long options that --help lists.
options()
{
	"$1" --help | grep -o '^ *\(-., \)\? *--[a-z-]*' | grep -o -e '--.*'
}

# in_bash WORD...: print what bash offers for the last word.
in_bash()
{
	bash -c '. "$1"; shift
		COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
		[[ $1 == rpmem_lead ]] && _rpmem_lead || _fi_rpmem
		printf "%s\n" "${COMPREPLY[@]}"' - \
		"$src/util/completion/fi_rpmem.bash" "$@" | sed 's/=$//'
}

# in_zsh LINE: print what zsh offers at the end of the line.
in_zsh()
{
	rm -f "$dir/offer" "$dir/offer.done"
	zsh -f "$src/fabtests/functional/completion.zsh" "$src/util/completion" \
		"$1" "$dir/offer" >&2 &&
		cat "$dir/offer"
}

printf '%s\n' power process none >"$dir/classes"
: >"$dir/secret"
echo "$dir/secret" >"$dir/file"
for tool in $tools; do
	options "$tool" >"$dir/want"
	in_bash "$tool" -- >"$dir/got"
	result "bash: options of $tool" "$dir/want" "$dir/got"
	case $tool in
	fi_rpmem_bench) printf 'pingpong\n' >"$dir/want"
		in_bash "$tool" pi >"$dir/got"
		result "bash: modes of $tool" "$dir/want" "$dir/got" ;;
	*)
		in_bash "$tool" --secret = "$dir/sec" >"$dir/got"
		result "bash: --secret=FILE of $tool" "$dir/file" "$dir/got" ;;
	esac
	case $tool in
	fi_rpmem_cp | fi_rpmem_bench | fi_rpmem_plugpull)
		in_bash "$tool" --class '' >"$dir/got"
		result "bash: --class of $tool" "$dir/classes" "$dir/got" ;;
	esac
done
in_bash fi_rpmem_cp -s "$dir/sec" >"$dir/got"
result "bash: -s FILE, whose long option has the value" "$dir/file" "$dir/got"


# commands_of_lead, options_of_lead COMMAND: as the usage of rpmem_lead has them.
commands_of_lead()
{
	rpmem_lead --help | sed -n 's/^.* rpmem_lead \([a-z]*\).*[A-Z].*/\1/p'
}
options_of_lead()
{
	rpmem_lead --help | grep " rpmem_lead $1 " | grep -o -e '\[--[a-z]*' |
		tr -d '['
}
if command -v etcdctl >/dev/null; then
	commands_of_lead >"$dir/commands"
	in_bash rpmem_lead '' >"$dir/got"
	result "bash: commands of rpmem_lead" "$dir/commands" "$dir/got"
	for command in run replace; do
		options_of_lead $command >"$dir/want"
		in_bash rpmem_lead $command - >"$dir/got"
		result "bash: rpmem_lead $command" "$dir/want" "$dir/got"
	done
	in_bash rpmem_lead replace --secret "$dir/sec" >"$dir/got"
	result "bash: rpmem_lead replace --secret" "$dir/file" "$dir/got"
fi

if ! command -v zsh >/dev/null; then
	echo "ok $((n + 1)) - zsh # SKIP zsh is missing; on Debian: apt-get install zsh"
	exit $failed
fi
for tool in $tools; do
	options "$tool" >"$dir/want"
	in_zsh "$tool --" >"$dir/got"
	result "zsh: options of $tool" "$dir/want" "$dir/got"
done
in_zsh "fi_rpmem_plugpull --class=" >"$dir/got"
result "zsh: --class" "$dir/classes" "$dir/got"
echo "pingpong" >"$dir/want"
in_zsh "fi_rpmem_bench pi" >"$dir/got"
result "zsh: modes of fi_rpmem_bench" "$dir/want" "$dir/got"
if command -v etcdctl >/dev/null; then
	in_zsh "rpmem_lead " >"$dir/got"
	result "zsh: commands of rpmem_lead" "$dir/commands" "$dir/got"
	for command in run replace; do
		options_of_lead $command >"$dir/want"
		in_zsh "rpmem_lead $command -" >"$dir/got"
		result "zsh: rpmem_lead $command" "$dir/want" "$dir/got"
	done
fi
exit $failed
