# Unpacks a Debian package, and what it needs beyond what is installed, into a new folder. Needs no root.
# Arguments: the folder, and the name of the package.

set -eu
target=$1
package=$2

# The folder gets its name when it is complete, so that a run that was interrupted leaves nothing to be
# mistaken for it.
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/debs" "$work/root"

apt() {
    apt-get -q \
        -o Dir::State="$work/state" -o Dir::State::status=/var/lib/dpkg/status \
        -o Dir::Cache="$work/cache" -o Debug::NoLocking=true "$@"
}

# One repository of many may be out of reach; whether that matters shows below.
apt update >&2 || true
plan=$(apt --simulate --no-install-recommends install "$package")
names=$(echo "$plan" | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
if [ -z "$names" ]; then
    echo "apt-get takes $package for installed already" >&2
    exit 1
fi

cd "$work/debs"
# Names of packages hold no blanks.
apt download $names >&2
for deb in *.deb; do
    dpkg -x "$deb" "$work/root"
done
# Two runs may fetch at once: the later one must not move its folder into that of the first.
[ -e "$target" ] || mv "$work/root" "$target"
