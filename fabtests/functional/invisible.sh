#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Random programs see the same on tcp and on tcp;ofi_rpmem, commits beside them.
set -u
programs=200
[ -z "${RP_SANITIZE:-}" ] || programs=20
exec fabtests/functional/invisible --programs "$programs"
