# Starts servers of Redis on demand in a new folder, until its standard input ends, which comes when the process that wants
# them ends in whatever way, kill -9 included. Then it ends them and removes the folder.
#
# Environment: REDIS_FOLDER holds the executables, REDIS_LIBRARIES is their LD_LIBRARY_PATH.
#
# Input: `start NAME ARGUMENT...` starts a server with a Unix socket NAME.sock, and a folder NAME that it finds again when it
# is started once more; `signal SIGNAL NAME` sends it a signal, and waits for its end if that is KILL. Each is answered
# by a line `ready FOLDER`, or why not.

set -u
exec 2>&1
ulimit -c 0
folder=

stop() {
    trap '' HUP INT TERM
    for file in "$folder"/*.pid; do
        [ -e "$file" ] && kill -s KILL "$(cat "$file")" 2>/dev/null
    done
    wait
    [ -z "$folder" ] || rm -rf "$folder"
}

start() {
    name=$1
    shift
    mkdir -p "$folder/$name"
    touch "$folder/$name.conf"
    rm -f "$folder/$name.sock"
    LD_LIBRARY_PATH=$REDIS_LIBRARIES "$REDIS_FOLDER/redis-server" "$folder/$name.conf" \
        --unixsocket "$folder/$name.sock" --dir "$folder/$name" --save '' "$@" >>"$folder/$name.log" 2>&1 &
    process=$!
    echo "$process" >"$folder/$name.pid"
    tries=1200
    # The socket is there before the server listens at it; whatever it answers will do.
    until LD_LIBRARY_PATH=$REDIS_LIBRARIES "$REDIS_FOLDER/redis-cli" -s "$folder/$name.sock" ping >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ] || ! kill -0 "$process" 2>/dev/null; then
            echo "redis $name did not start; the end of its log:"
            tail -n 20 "$folder/$name.log"
            exit 1
        fi
        sleep 0.02
    done
}

trap '' PIPE
trap 'exit 1' HUP INT TERM
trap stop EXIT

folder=$(mktemp -d /tmp/semel-XXXXXX) || exit 1
echo "ready $folder"
while read -r order words; do
    # Arguments have no spaces here.
    set -f
    set -- $words
    set +f
    case $order in
    start) start "$@" ;;
    signal)
        process=$(cat "$folder/$2.pid")
        kill -s "$1" "$process"
        # A shell says of a process that it was killed, and nobody waits for that line.
        [ "$1" != KILL ] || { wait "$process"; } 2>/dev/null
        ;;
    esac
    echo "ready $folder"
done
