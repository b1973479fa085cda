#!/bin/sh
# The compiler of the packages of this workspace for `cargo xtask faults`: with failpoints. Cargo calls it as
# RUSTC_WORKSPACE_WRAPPER, so that dependencies are not built anew.
exec "$@" --cfg semel_faults
