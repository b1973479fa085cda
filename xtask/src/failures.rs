//! The names of the failed tests, as cargo and nextest print them during a run.

/// The failures in the output of a run of tests so far.
#[derive(Default)]
pub(crate) struct Failures {
    /// The failures of the test binary that is running now.
    listed: Vec<String>,
    /// Set while the lines are the list of that binary.
    lists: bool,
    /// Set while the lines are the summary of nextest.
    sums_up: bool,
    names: Vec<String>,
}

impl Failures {
    /// Reads a line of the output.
    pub(crate) fn hear(&mut self, line: &str) {
        let line = plain(line);
        if line.starts_with("error: test run failed") {
            self.sums_up = false;
        } else if self.sums_up {
            // "        FAIL [   0.015s] (7/9) package::binary name"
            if let Some((status, name)) = line.split_once("] ")
                && status.split_whitespace().next().is_some_and(is_status)
                && !self.names.iter().any(|known| known == name)
            {
                self.names.push(name.to_owned());
            }
        } else if line.trim_start().starts_with("Summary [") {
            self.sums_up = true;
        } else if line == "failures:" {
            // The first of two such lists contains the output of the tests; the one in front of the
            // result contains the names.
            self.listed.clear();
            self.lists = true;
        } else if line.starts_with("test result: ") {
            self.lists = false;
        } else if line.trim_start().starts_with("Running ") || line.trim_start().starts_with("Doc-tests ") {
            self.listed.clear();
        } else if let Some(hint) = line
            .strip_prefix("error: test failed, to rerun pass `")
            .or_else(|| line.strip_prefix("error: doctest failed, to rerun pass `"))
        {
            self.close(hint.trim_end_matches('`'));
        } else if self.lists
            && let Some(name) = line.strip_prefix("    ")
        {
            self.listed.push(name.to_owned());
        }
    }

    /// Adds the failures of a test binary, which is run again with this hint.
    fn close(&mut self, hint: &str) {
        if self.listed.is_empty() {
            self.names.push(format!("{hint}: it ended before its tests did"));
        }
        self.names.extend(self.listed.drain(..).map(|name| format!("{hint} {name}")));
        self.lists = false;
    }

    /// Each failed test, after the arguments that run its binary again.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

/// Returns `true` for a word such as `FAIL`, and `false` for a word of another program, whose lines
/// follow the summary of a run without failures.
fn is_status(word: &str) -> bool {
    word.chars().all(|letter| letter.is_ascii_uppercase())
}

/// A line without colours.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut parts = line.split("\u{1b}[");
    plain.extend(parts.next());
    // A colour ends with an `m`.
    plain.extend(parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text)));
    plain
}

#[cfg(test)]
mod facts {
    use super::*;

    fn names(output: &str) -> Vec<String> {
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.hear(line));
        failures.names().to_vec()
    }

    #[test]
    fn names_come_from_every_binary_that_failed() {
        let output = "\
     Running tests/memory.rs (target/debug/deps/memory-1)
test a ... ok
test result: ok. 1 passed; 0 failed
\u{1b}[1m\u{1b}[32m     Running\u{1b}[0m tests/once/main.rs (target/debug/deps/once-1)
test leases::b ... FAILED
test waits::c ... FAILED

failures:

---- leases::b stdout ----
    indented, and printed by the test

failures:
    leases::b
    waits::c

test result: FAILED. 0 passed; 2 failed

\u{1b}[1m\u{1b}[91merror\u{1b}[0m: test failed, to rerun pass `-p semel --test once`
     Running tests/crash.rs (target/debug/deps/crash-1)
test d ... error: test failed, which is no word of cargo
error: test failed, to rerun pass `-p semel --test crash`

Caused by:
  process didn't exit successfully (signal: 6, SIGABRT: process abort signal)
   Doc-tests semel
failures:
    semel/src/lib.rs - (line 7)
test result: FAILED. 0 passed; 1 failed
error: doctest failed, to rerun pass `-p semel --doc`
";
        assert_eq!(
            names(output),
            [
                "-p semel --test once leases::b",
                "-p semel --test once waits::c",
                "-p semel --test crash: it ended before its tests did",
                "-p semel --doc semel/src/lib.rs - (line 7)",
            ]
        );
    }

    #[test]
    fn names_come_from_the_summary_of_nextest() {
        let output = "\
        FAIL [   0.004s] (1/3) semel::once leases::b
  stderr ───
    failures:
        PASS [   0.005s] (2/3) semel::once waits::c
────────────
     Summary [   0.123s] 3 tests run: 1 passed, 2 failed, 0 skipped
        FAIL [   0.004s] (1/3) semel::once leases::b
     SIGABRT [   0.004s] (3/3) semel::crash d
error: test run failed
    Finished `test` profile [unoptimized + debuginfo] target(s) in 36.01s
";
        assert_eq!(names(output), ["(1/3) semel::once leases::b", "(3/3) semel::crash d"]);
    }

    #[test]
    fn a_run_without_failures_has_no_names() {
        let output = "\
     Summary [   0.123s] 3 tests run: 3 passed (1 slow), 0 skipped
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.21s
";
        assert_eq!(names(output), [""; 0]);
    }
}
