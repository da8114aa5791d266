#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# librpmem_log and librpmem_rpc over another base than tcp, with a few kills.
set -u
export RP_BASE=sockets
"${srcdir:-.}"/fabtests/fault/log_lives.sh 4 || exit
exec "${srcdir:-.}"/fabtests/fault/rpc_lives.sh 4
