# Ends a step of xtask when xtask itself is gone, which closes standard input.
# Input: the process of the step, then, once it has ended, any line.

read -r step || exit
if read -r line; then
    exit
fi
# Ctrl-C reaches the step as well: the second is for it to end by itself.
sleep 1
# `cargo test` does not end the tests that it runs. Only Linux has the list of them.
kill -s TERM "$step" $(cat "/proc/$step"/task/*/children 2>/dev/null)
