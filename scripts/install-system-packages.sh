#!/bin/sh
# Install the system packages that tests need: Chromium, which opens reports and pages,
# PostgreSQL, on which the service is tried, and the library libGL, without which OpenCV
# does not start. Where that is not possible, say so: tests that need them then skip.
set -u
packages=""
found=""
for browser in chromium chromium-browser google-chrome; do
    if command -v "$browser" >/dev/null 2>&1; then
        found=yes
    fi
done
[ -n "$found" ] || packages="chromium"
if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 &&
    ! command -v initdb >/dev/null 2>&1; then
    packages="$packages postgresql"
fi
if command -v ldconfig >/dev/null 2>&1 && ! ldconfig -p | grep -q 'libGL\.so\.1'; then
    packages="$packages libgl1 libglib2.0-0"
fi
[ -n "$packages" ] || exit 0
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo -n"
fi
if command -v apt-get >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    $as_root apt-get update -qq &&
        DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq \
            --no-install-recommends $packages >/dev/null && exit 0
fi
echo "Could not install:$packages. Tests that need them will skip." >&2
exit 0
