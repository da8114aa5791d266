#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# What fi_rpmem_info --doctor reads of the disk below the build folder is what
# lsblk and the files of sysfs say. It only reads.
set -u
command -v lsblk findmnt >/dev/null || { echo "SKIP: no lsblk or findmnt"; exit 77; }
mount=$(findmnt -no SOURCE,FSTYPE --target .)
disks=$(lsblk -rnso KNAME,TYPE "${mount%% *}" 2>/dev/null |
	awk '$2 == "disk" || $2 == "loop" { print $1 }' | sort -u)
[ -n "$disks" ] || { echo "SKIP: $PWD is on $mount, in which lsblk sees no disk"; exit 77; }
unset FI_OFI_RPMEM_CLASS FI_OFI_RPMEM_EMULATE FI_OFI_RPMEM_OPERATOR
export FI_PROVIDER_PATH="$PWD/prov/rpmem/.libs" FI_PROVIDER='tcp;ofi_rpmem'
said=$(timeout 60 util/fi_rpmem_info --doctor . 2>&1 | grep '^[a-z]*  *disk  ')
failed=0 compared=0

# has TEXT: the line of the disk has it
has()
{
	compared=$((compared + 1))
	case "$line," in
	*"$1,"*) echo "$disk: $1" ;;
	*) echo "FAIL: $disk: no '$1' in '$line'"; failed=1 ;;
	esac
}

for disk in $disks; do
	line=$(echo "$said" | grep "/sys/block/$disk,")
	for name in write_cache fua; do
		file=/sys/block/$disk/queue/$name
		[ ! -r "$file" ] || has "queue/$name: $(cat "$file")"
	done
	has "queue/rotational: $(lsblk -dno ROTA "/dev/$disk" | tr -d ' ')"
done
count=$(echo "$said" | grep -c .)
[ "$count" -ge "$(echo "$disks" | wc -l)" ] ||
	{ echo "FAIL: $count disks, lsblk sees: $disks"; failed=1; }
[ $compared -gt 0 ] || failed=1
exit $failed
