# SPDX-License-Identifier: BSD-2-Clause
# States that msync in a directory reaches a disk, where no program can find that
# out. quickstart.sh, check.sh and fabtests/platform/packages.sh source this file.
# shellcheck shell=sh

# trust_word TOOL DIR FIELD: print a field of what TOOL, fi_rpmem_info, reports
# about a directory.
trust_word() {
	"$1" "$2" 2>/dev/null | sed -n "s/^  $3  *//p" | tail -1
}

# trust_folder TOOL DIR: make commits to DIR possible in a container or chroot. These
# do not show that msync in DIR reaches a disk, so commits are refused. Print this,
# and export FI_OFI_RPMEM_TRUST_FS for later commands. Fail if that does not help.
trust_folder() {
	[ "$(trust_word "$1" "$2" class)" != power ] || return 0
	trust_fs=$(trust_word "$1" "$2" 'file system')
	echo "$2 is on ${trust_fs:-an unknown file system}: $(trust_word "$1" "$2" why)"
	trust_fs=${FI_OFI_RPMEM_TRUST_FS:+$FI_OFI_RPMEM_TRUST_FS,}$trust_fs
	if [ "$(FI_OFI_RPMEM_TRUST_FS=$trust_fs
		export FI_OFI_RPMEM_TRUST_FS
		trust_word "$1" "$2" class)" != power ]; then
		echo "nothing there can be made durable: use a folder on a disk"
		return 1
	fi
	export FI_OFI_RPMEM_TRUST_FS="$trust_fs"
	cat <<U
What follows is run on YOUR statement that an msync there reaches stable storage
(FI_OFI_RPMEM_TRUST_FS=$FI_OFI_RPMEM_TRUST_FS): it shows how the parts work
together, not that this file system survives a power cut.
U
}
