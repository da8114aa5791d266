# SPDX-License-Identifier: BSD-2-Clause
# bash completion of the tools of ofi_rpmem. The options are those that --help
# prints, so none is missing here; the name of a value in --help selects the
# words that complete it.

# Complete a command line in which bash has split --option=value at the "=".
_fi_rpmem()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev= help value IFS=$' \t\n'

	((COMP_CWORD > 0)) && prev=${COMP_WORDS[COMP_CWORD - 1]}
	if [[ $cur == = ]]; then
		cur=
	elif [[ $prev == = ]]; then
		prev=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	help=$("${COMP_WORDS[0]/#\~/$HOME}" --help 2>/dev/null) || return
	COMPREPLY=()
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(sed -nE \
			's/^ +(-.,|   ) (--[a-z-]+=?).*/\2/p' <<<"$help")" -- "$cur")
		[[ ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
		return
	fi
	# Find the name of prev's value in a line such as "-s, --secret=FILE".
	value=$(sed -nE "s/^ +(-., |    )--([a-z-]+)=([A-Z]+).*/\1--\2 \3/p" <<<"$help" |
		while read -r a b c; do
			[[ $prev != "${a%,}" && $prev != "$b" ]] || echo "${c:-$b}"
		done)
	case $value in
	CLASS) mapfile -t COMPREPLY < <(compgen -W 'power process none' -- "$cur") ;;
	COMMAND) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
	HOST | ADDR) mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur") ;;
	NAME) [[ $prev != --base ]] ||
		mapfile -t COMPREPLY < <(compgen -W 'tcp sockets verbs' -- "$cur") ;;
	FILE | DEVICE | LEDGER | DIR | RESULT)
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	"")
		if [[ ${COMP_WORDS[0]} == *fi_rpmem_bench ]]; then
			mapfile -t COMPREPLY < <(compgen -W "$(tr '\n' ' ' <<<"$help" |
				sed -nE 's/.*Modes: ([^.]*)\..*/\1/p' |
				sed 's/(the default)//; s/,/ /g')" -- "$cur")
		else
			compopt -o filenames 2>/dev/null
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		fi
		;;
	esac
}
complete -F _fi_rpmem fi_rpmemd fi_rpmem_cp fi_rpmem_info fi_rpmem_bench \
	fi_rpmem_group fi_rpmem_plugpull fi_rpmem_crashtest

_rpmem_lead()
{
	local cur=${COMP_WORDS[COMP_CWORD]} how=${COMP_WORDS[1]} words=

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		words='run replace set get'
	elif [[ ${COMP_WORDS[COMP_CWORD - 1]} == --secret ]]; then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
	elif [[ $cur == -* && $how == run ]]; then
		words=--ttl
	elif [[ $cur == -* && $how == replace ]]; then
		words='--ttl --secret'
	fi
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _rpmem_lead rpmem_lead
