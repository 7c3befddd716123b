#!/usr/bin/env bash
# Installs libcorsac, its header, and what pkg-config and CMake need to find them.
#
#   scripts/install_capi.sh FOLDER
#
# FOLDER has libcorsac.a and libcorsac.so, as Cargo has built them. PREFIX (/usr/local), LIBDIR
# (PREFIX/lib) and DESTDIR say where to, as usual.
set -euo pipefail

libraries=$(realpath "${1:?usage: scripts/install_capi.sh FOLDER}")
cd "$(dirname "$0")/../crates/corsac-capi"

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-$prefix/lib}
root=${DESTDIR:-}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' ../../Cargo.toml | head -1)
major=${version%%.*}
# As `cargo rustc -p corsac-capi --crate-type staticlib -- --print native-static-libs` lists them.
libs='-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc'

case $prefix$libdir in
    /*) ;;
    *) echo "install_capi.sh: PREFIX and LIBDIR are absolute paths" >&2; exit 2 ;;
esac

fill() {
    sed -e "s|@PREFIX@|$prefix|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$version|g" \
        -e "s|@MAJOR@|$major|g" -e "s|@LIBS@|$libs|g" -e "s|@LIST@|${libs// /;}|g" \
        "install/$1.in" > "$root$2/$1"
    chmod 644 "$root$2/$1"
}

install -d "$root$prefix/include" "$root$libdir/pkgconfig" "$root$libdir/cmake/corsac"
install -m 644 include/corsac.h "$root$prefix/include/corsac.h"
install -m 644 "$libraries/libcorsac.a" "$root$libdir/libcorsac.a"
install -m 755 "$libraries/libcorsac.so" "$root$libdir/libcorsac.so.$version"
ln -sf "libcorsac.so.$version" "$root$libdir/libcorsac.so.$major"
ln -sf "libcorsac.so.$major" "$root$libdir/libcorsac.so"
if [ "${STRIP-yes}" = yes ]; then
    strip --strip-debug "$root$libdir/libcorsac.a"
    strip --strip-unneeded "$root$libdir/libcorsac.so.$version"
fi
fill corsac.pc "$libdir/pkgconfig"
fill corsac-config.cmake "$libdir/cmake/corsac"
fill corsac-config-version.cmake "$libdir/cmake/corsac"
