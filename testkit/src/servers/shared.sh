# Starts servers in a new folder and waits for the end of its standard input, which comes when the process that wants them
# ends in whatever way, kill -9 included. Then it stops them and removes the folder.
#
# Environment: POSTGRES_FOLDER and REDIS_FOLDER hold the executables, and are unset for a server that is not
# wanted; POSTGRES_LIBRARIES and REDIS_LIBRARIES are the LD_LIBRARY_PATH of each. POSTGRES_SETTINGS are more
# arguments of Postgres, one a line.
#
# Input, while they run: `crash` stops Postgres without a chance to tidy up, `start` starts it again; both are
# answered by a line `ready FOLDER`.
#
# Output: first `ready FOLDER` or why not, then what went wrong until the end, if anything.

set -u
exec 2>&1
ulimit -c 0
folder=
postgres=
redis=

# Says that a program failed, with what it said last.
report() {
    echo "$1 $2; the end of its log:"
    tail -n 20 "$folder/$1.log"
}

# Whether a process runs. A shell takes notice of the end of its children while it waits for another.
runs() {
    [ -n "$1" ] && sleep 0.02 && kill -0 "$1" 2>/dev/null
}

# Waits until a test on a new server succeeds: server, process, test.
await() {
    server=$1
    process=$2
    shift 2
    tries=1200
    until "$@"; do
        tries=$((tries - 1))
        if ! runs "$process"; then
            report "$server" 'ended while it started'
            exit 1
        elif [ "$tries" -eq 0 ]; then
            report "$server" 'did not start within 30 s'
            exit 1
        fi
    done
}

stop() {
    trap '' HUP INT TERM
    # The data is thrown away, so impatience does no harm. The last signal is for a server that hangs;
    # Postgres gets the chance to end its children before that.
    for signal in INT QUIT KILL; do
        tries=200
        kill -s "$signal" $postgres $redis 2>/dev/null
        while runs "$postgres" || runs "$redis"; do
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || continue 2
        done
        break
    done
    [ -z "$folder" ] || rm -rf "$folder" || { sleep 1 && rm -rf "$folder"; }
}

# A reader that is gone must not end this shell before it has tidied up.
trap '' PIPE
trap 'exit 1' HUP INT TERM
trap stop EXIT

# The path of a Unix socket has room for some hundred bytes, which TMPDIR may use up.
folder=$(mktemp -d /tmp/semel-XXXXXX) || exit 1

if [ -n "${REDIS_FOLDER:-}" ]; then
    LD_LIBRARY_PATH=$REDIS_LIBRARIES "$REDIS_FOLDER/redis-server" \
        --port 0 --unixsocket "$folder/redis.sock" --save '' --appendonly no --dir "$folder" \
        >"$folder/redis.log" 2>&1 &
    redis=$!
fi
start_postgres() {
    # One argument a line, as values may hold spaces.
    set -f
    old_ifs=$IFS
    IFS='
'
    set -- ${POSTGRES_SETTINGS:-}
    IFS=$old_ifs
    set +f
    LD_LIBRARY_PATH=$POSTGRES_LIBRARIES "$POSTGRES_FOLDER/postgres" -D "$folder/data" -k "$folder" -p 5432 \
        -c listen_addresses= -c max_connections=200 -c fsync=on "$@" \
        >>"$folder/postgres.log" 2>&1 &
    postgres=$!
    # The server notes its state in this file; pg_ctl waits for the same word.
    await postgres "$postgres" grep -qs ^ready "$folder/data/postmaster.pid"
}

if [ -n "${POSTGRES_FOLDER:-}" ]; then
    # A crash of the machine may cost the new database: only what tests write has to be safe on disk.
    LD_LIBRARY_PATH=$POSTGRES_LIBRARIES "$POSTGRES_FOLDER/initdb" --pgdata "$folder/data" --username postgres --auth trust \
        --encoding UTF8 --locale C --no-sync >"$folder/initdb.log" 2>&1 || {
        report initdb 'could not create a database'
        exit 1
    }
    start_postgres
fi
[ -z "$redis" ] || await redis "$redis" test -S "$folder/redis.sock"

echo "ready $folder"
while read -r order; do
    case $order in
    crash)
        kill -s QUIT "$postgres"
        wait "$postgres"
        # What it left would be taken for the word of the next one.
        rm -f "$folder/data/postmaster.pid"
        ;;
    start) start_postgres ;;
    esac
    echo "ready $folder"
done

[ -z "$postgres" ] || runs "$postgres" || report postgres 'ended before the tests did'
[ -z "$redis" ] || runs "$redis" || report redis 'ended before the tests did'
