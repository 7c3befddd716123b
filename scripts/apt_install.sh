#!/usr/bin/env bash
# Installs packages of Debian without a word; fails where that is not possible.
#
#     scripts/apt_install.sh PACKAGE...
set -euo pipefail

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
(timeout 120 apt-get -qq update && DEBIAN_FRONTEND=noninteractive timeout 240 \
    apt-get -qq install -y --no-install-recommends "$@") >/dev/null 2>&1
