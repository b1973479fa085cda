# Mounts a small file system in a new folder until its standard input ends, which comes when the process that wants it ends
# in whatever way, kill -9 included. Needs root, or a user namespace of its own, in which this is root.
#
# Environment: BYTES is its size, OWNER the number of its user and group. SEEN_FROM_OUTSIDE is set in a namespace: only
# processes in it see the file system under its own path.
#
# Output: `ready FOLDER`, or why not.

set -u
exec 2>&1
folder=

end() {
    trap '' HUP INT TERM
    # A server may still be about to end there. It keeps its files, and the memory is given back after it.
    [ -z "$folder" ] || umount --lazy "$folder"
    [ -z "$folder" ] || rmdir "$folder"
}

trap '' PIPE
trap 'exit 1' HUP INT TERM

folder=$(mktemp -d /tmp/semel-disk-XXXXXX) || exit 1
mount -t tmpfs -o "size=$BYTES,mode=700,uid=$OWNER,gid=$OWNER" semel "$folder" || {
    rmdir "$folder"
    exit 1
}
trap end EXIT
echo "ready ${SEEN_FROM_OUTSIDE:+/proc/$$/root}$folder"
read -r line
