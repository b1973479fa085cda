# Installs a Debian package, but neither creates a database nor starts a service of this system.
# Argument: the name of the package.

set -eu
policy=/usr/sbin/policy-rc.d
clusters=/etc/postgresql-common/createcluster.conf

# dpkg insists on finding the programs of the system's administration.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export DEBIAN_FRONTEND=noninteractive
# Keeps the file about clusters when the package brings its own.
export UCF_FORCE_CONFFOLD=1

# Files to take back at the end, whichever it is.
ours=
trap 'rm -f $ours' EXIT
trap 'exit 130' HUP INT TERM

if [ ! -e "$policy" ]; then
    ours=$policy
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
before_clusters=$ours
if [ "$1" = postgresql ] && [ ! -e "$clusters" ]; then
    # It stays with the package; without it, it would surprise whoever installs the package later.
    ours="$ours $clusters"
    mkdir -p "${clusters%/*}"
    echo 'create_main_cluster = false' >"$clusters"
fi

have_lists() {
    for list in /var/lib/apt/lists/*_Packages*; do
        [ ! -e "$list" ] || return 0
    done
    return 1
}

install() {
    apt-get install -q -y --no-install-recommends -o DPkg::Lock::Timeout=120 "$1" >&2
}

update() {
    # One repository of many may be out of reach; whether that matters is for the installation to say.
    apt-get update -q >&2 || true
}

have_lists || update
install "$1" || {
    update
    install "$1"
}
ours=$before_clusters
