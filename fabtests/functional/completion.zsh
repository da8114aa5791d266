# SPDX-License-Identifier: BSD-2-Clause
# Writes what an interactive zsh offers at the end of a line to a file, one word in
# each line. Completions are in FOLDER, or, if it is "", in the folders of zsh itself.
#
# usage: zsh -f completion.zsh FOLDER LINE FILE
zmodload zsh/zpty || exit 1
zpty shell zsh -f -i
zpty -w shell "PS1= ; ${1:+fpath=(${(q)1} \$fpath);} autoload -U compinit; compinit -u -D
compadd() {
	local -a m
	builtin compadd -O m \"\$@\"
	print -rl -- \$m >>${(q)3}
	builtin compadd \"\$@\"
}
zle -C offer list-choices _main_complete
offer_all() { zle offer; : >${(q)3}.done }
zle -N offer_all; bindkey '^T' offer_all"
zpty -w -n shell "$2"$'\x14'
for i in {1..400}; do
	[[ -e $3.done ]] && break
	zpty -r -t shell seen
	sleep 0.05
done
zpty -d shell
[[ -e $3.done ]]
