//! The commands in the documentation, run as their pages describe.

use crate::page::{Step, all, read, steps};
use crate::place::Place;

/// Runs the steps of a page.
fn follow(page: &str, steps: &[Step]) {
    println!("{page}");
    let mut place = Place::new();
    let mut printed = String::new();
    for step in steps {
        match step {
            Step::File { name, text } => place.write(name, text),
            Step::Start { port, command } => place.start(*port, command),
            Step::Run(commands) => printed = place.run(commands),
            Step::Shows(expected) => {
                let missing = missing(expected, &printed);
                assert_eq!(missing, None, "{page} shows a line that is not printed in its place:\n{printed}");
            }
        }
    }
}

/// The first expected line that is not among the printed ones, behind those in front of it.
fn missing<'a>(expected: &'a str, printed: &str) -> Option<&'a str> {
    let mut printed = printed.lines();
    expected.lines().find(|line| !printed.any(|candidate| matches(line, candidate)))
}

/// Returns `true` if a line is as expected, with any text where the expected one has `…`.
fn matches(expected: &str, line: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut open = false;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        open = part.is_empty();
    }
    open || rest.is_empty()
}

#[test]
fn commands_in_the_pages_do_what_the_pages_say() {
    let mut followed = Vec::new();
    for page in all() {
        let steps = steps(&read(&page));
        if steps.iter().any(|step| matches!(step, Step::Run(_))) {
            follow(&page, &steps);
            followed.push(page);
        }
    }
    for page in ["README.md", "docs/cli.md", "docs/quickstarts/gateway.md"] {
        assert!(followed.iter().any(|followed| followed == page), "{page} has no commands that are run");
    }
}

#[test]
fn an_ellipsis_stands_for_any_text() {
    assert!(matches("HTTP/1.1 201 Created", "HTTP/1.1 201 Created"));
    assert!(!matches("HTTP/1.1 201", "HTTP/1.1 201 Created"));
    assert!(matches("…\"code\":\"a\"…", "{\"code\":\"a\",\"status\":1}"));
    assert!(!matches("…\"code\":\"b\"…", "{\"code\":\"a\",\"status\":1}"));
    assert!(matches("a…b…", "a 1 b 2") && matches("a…c", "a b c") && !matches("a…c", "a b c d"));
}

#[test]
fn lines_are_expected_in_their_order() {
    assert_eq!(missing("a\nb", "x\na\nx\nb\n"), None);
    assert_eq!(missing("b\na", "a\nb\n"), Some("a"));
}
