# Kills what is left of the processes of a harness when that is gone, which closes standard input.
# Input: `begins ID` and `ends ID`, one a line.

alive=' '
while read -r change process; do
    case $change in
    begins) alive="$alive$process " ;;
    ends)
        case $alive in
        *" $process "*) alive="${alive%%" $process "*} ${alive#*" $process "}" ;;
        esac
        ;;
    esac
done
[ "$alive" = ' ' ] || kill -s KILL $alive 2>/dev/null
