#!/bin/sh
# Makes ./configure; needed once after a checkout.
set -e
cd "$(dirname "$0")"
mkdir -p m4 build-aux
exec autoreconf -fi
