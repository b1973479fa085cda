# Starts servers of Postgres on demand in a new folder, until its standard input ends, which comes when the process that
# wants them ends in whatever way, kill -9 included. Then it ends them and removes the folder.
#
# Environment: POSTGRES_FOLDER holds the executables, POSTGRES_LIBRARIES is their LD_LIBRARY_PATH.
#
# Input: orders of the form `ORDER NAME PORT WORDS`, listed at the end. NAME.conf, in the folder, is the configuration
# of a server, and NAME its data. Each order is answered by a line `ready FOLDER`, after why it failed, if it did. A server
# that does not start is no reason to end the others: tests fill disks.

set -u
exec 2>&1
ulimit -c 0
folder=

# A program of Postgres: name, arguments.
run() {
    program=$1
    shift
    LD_LIBRARY_PATH=$POSTGRES_LIBRARIES "$POSTGRES_FOLDER/$program" "$@"
}

# Asks a server: name, port, query.
ask() {
    PGCONNECT_TIMEOUT=10 PGOPTIONS='-c statement_timeout=30s' run psql --no-psqlrc --quiet --tuples-only --no-align --host "$folder" --port "$2" --username postgres \
        --command "$3" postgres 2>>"$folder/$1.log"
}

# Says that something failed, with the end of the log.
fail() {
    echo "$1; the end of its log:"
    tail -n 20 "$folder/$name.log"
    return 1
}

# The letter of a process's state; nothing if there is no such process.
state() {
    sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null
}

# Whether none of these processes does anything any more. One that nobody has waited for is gone all the same.
gone() {
    for one in "$@"; do
        case $(state "$one") in
        '' | Z) ;;
        *) return 1 ;;
        esac
    done
}

# Waits until a test succeeds, for a minute; or, with a process, until that one is gone: process, test.
await() {
    alive=$1
    shift
    tries=3000
    until "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        [ -z "$alive" ] || ! gone "$alive" || return 1
        sleep 0.02
    done
}

# The postmaster of the server, or nothing.
postmaster() {
    cat "$folder/$name.pid" 2>/dev/null
}

# The postmaster and its children.
tree() {
    echo "$(postmaster)" $(cat "/proc/$(postmaster)/task/$(postmaster)/children" 2>/dev/null)
}

# Removes what a server that was killed leaves behind: files by which the next one would be taken for it, and a segment of
# shared memory that only the next one would remove.
tidy() {
    segment=$(sed -n '7s/.* //p' "$folder/$name/postmaster.pid" 2>/dev/null)
    [ -z "$segment" ] || ipcrm -m "$segment" 2>/dev/null
    rm -f "$folder/$name/postmaster.pid" "$folder/$name.pid"
}

crash() {
    process=$(postmaster)
    [ -n "$process" ] || { echo "$name is not running" && return 1; }
    # What is stopped starts no more children; each is in a group of its own, so they have to be listed.
    kill -s STOP "$process" 2>/dev/null && await "$process" is_stopped
    processes=$(tree)
    kill -s KILL $processes
    wait "$process"
    await '' gone $processes
    tidy
}

is_stopped() {
    [ "$(state "$process")" = T ]
}

# Creates a database. A crash of the machine may cost it: only what tests write has to be safe on disk.
create() {
    run initdb --pgdata "$folder/$name" --username postgres --auth trust --encoding UTF8 --locale C --no-sync \
        >>"$folder/$name.log" 2>&1 || fail "could not create the database of $name"
}

start() {
    process=$(postmaster)
    if [ -n "$process" ]; then
        gone "$process" || { echo "$name runs already" && return 1; }
        wait "$process"
        tidy
    fi
    # A socket of a server that was killed is in nobody's way, but its lock may name a process that is somebody else by now.
    rm -f "$folder/.s.PGSQL.$port" "$folder/.s.PGSQL.$port.lock"
    [ -e "$folder/$name/PG_VERSION" ] || create || return
    # It would first sync all files, also those just copied. They are safe with the system, unless the machine crashes.
    echo 'fsync = off' >"$folder/$name.start.conf"
    LD_LIBRARY_PATH=$POSTGRES_LIBRARIES "$POSTGRES_FOLDER/postgres" -D "$folder/$name" \
        -c config_file="$folder/$name.conf" >>"$folder/$name.log" 2>&1 &
    process=$!
    echo "$process" >"$folder/$name.pid"
    # The server notes its state in this file; pg_ctl waits for the same word.
    await "$process" grep -qs ^ready "$folder/$name/postmaster.pid" && {
        rm "$folder/$name.start.conf"
        kill -s HUP "$process"
        return
    }
    gone "$process" || { fail "$name did not start within a minute"; return; }
    wait "$process"
    tidy
    fail "$name ended while it started"
}

stop() {
    process=$(postmaster)
    [ -n "$process" ] || { echo "$name is not running" && return 1; }
    kill -s INT "$process"
    await '' gone "$process" || { fail "$name did not stop within a minute"; return; }
    wait "$process"
    tidy
}

# Makes a server anew as a copy of another, of which this is the port, and starts it.
copy() {
    [ -z "$(postmaster)" ] || crash || return
    # The folder itself may be a link to a disk of its own.
    [ ! -e "$folder/$name" ] || find "$folder/$name/" -mindepth 1 -delete
    # Without a slot: with one, the copying would count as a standby that has got what it was sent.
    run pg_basebackup --pgdata "$folder/$name" --host "$folder" --port "$1" --username postgres --checkpoint fast \
        --no-slot --no-sync >>"$folder/$name.log" 2>&1 || { fail "could not copy the data for $name"; return; }
    rm -f "$folder/$name/backup_manifest"
    touch "$folder/$name/standby.signal"
    start || return
    await "$(postmaster)" streams "$1" || fail "$name does not stream"
}

streams() {
    [ "$(ask "$name" "$1" "select 1 from pg_stat_replication where application_name = '$name' and state = 'streaming'")" ]
}

promote() {
    touch "$folder/$name/promote"
    kill -s USR1 "$(postmaster)"
    await "$(postmaster)" is_primary || fail "$name was not promoted"
}

is_primary() {
    [ "$(ask "$name" "$port" 'select pg_is_in_recovery()')" = f ]
}

# Lets a server read its configuration again, in which standbys of these names are to be waited for now.
reload() {
    kill -s HUP "$(postmaster)"
    await "$(postmaster)" waits_for "$1" || { fail "$name did not read its configuration"; return; }
    # The checkpointer publishes which standbys are waited for, when it gets to it; before a checkpoint it does.
    ask "$name" "$port" checkpoint || fail "$name made no checkpoint"
}

waits_for() {
    names=$(ask "$name" "$port" 'show synchronous_standby_names') && [ "$names" = "$1" ]
}

# Sends a signal to the process of a standby that receives.
signal_receiver() {
    for process in $(tree); do
        if tr '\0' ' ' <"/proc/$process/cmdline" 2>/dev/null | grep -q 'postgres: walreceiver'; then
            kill -s "$1" "$process"
            [ "$1" != STOP ] || await "$process" is_stopped
            return
        fi
    done
    fail "$name receives nothing"
}

# Puts the data of a server that there is not yet elsewhere.
place() {
    mkdir "$1/$name" && ln -s "$1/$name" "$folder/$name" || { echo "could not put $name into $1" && return 1; }
}

end() {
    trap '' HUP INT TERM
    for file in "$folder"/*.pid; do
        name=${file##*/}
        name=${name%.pid}
        [ ! -e "$file" ] || crash
    done
    [ -z "$folder" ] || rm -rf "$folder"
}

# A reader that is gone must not end this shell before it has tidied up.
trap '' PIPE
trap 'exit 1' HUP INT TERM
trap end EXIT

# The path of a Unix socket has room for some hundred bytes, which TMPDIR may use up.
folder=$(mktemp -d /tmp/semel-XXXXXX) || exit 1
# Some shells say of a process that it was killed, and nobody waits for that line.
exec 2>>"$folder/guardian.log"
echo "ready $folder"
while read -r order name port words; do
    case $order in
    start) start ;;
    crash) crash ;;
    stop) stop ;;
    copy) copy "$words" ;;
    promote) promote ;;
    reload) reload "$words" ;;
    receiver) signal_receiver "$words" ;;
    signal) kill -s "$words" "$(postmaster)" || echo "$name is not running" ;;
    signal_all) kill -s "$words" $(tree) || echo "$name is not running" ;;
    place) place "$words" ;;
    esac
    echo "ready $folder"
done
