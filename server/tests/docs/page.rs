//! A page of the documentation, with the steps that its markers name.
//!
//! A marker is an HTML comment on a line of its own in front of a code block:
//!
//! | marker | the code block is |
//! | --- | --- |
//! | `<!-- file: NAME -->` | the text of a file |
//! | `<!-- start: PORT -->` | a command that stays, and listens on this port |
//! | `<!-- run -->` | commands of the shell that must succeed |
//! | `<!-- shows -->` | lines that the commands in front of it print, in this order; `…` stands for any text |
//!
//! Two markers have no code block: `<!-- files of: PAGE -->` takes over the files of another page,
//! and `<!-- start: PORT, COMMAND -->` starts a command that the page does not show.

use std::fs;
use std::path::{Path, PathBuf};

/// One step of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    File { name: String, text: String },
    Start { port: u16, command: String },
    Run(String),
    Shows(String),
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The text of a page, named from the root.
pub(crate) fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The README and every page in `docs`, named from the root.
pub(crate) fn all() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("the folder is there") {
            let entry = entry.expect("an entry");
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                pages.push(name);
            }
        }
    }
    pages.sort();
    pages
}

/// The steps that the markers of a page name.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let mut lines = text.lines().peekable();
    let mut steps = Vec::new();
    while let Some(line) = lines.next() {
        let Some(marker) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) else {
            continue;
        };
        let (kind, argument) = marker.split_once(": ").unwrap_or((marker, ""));
        match (kind, argument.split_once(", ")) {
            ("file", None) => steps.push(Step::File { name: argument.to_owned(), text: block(&mut lines) }),
            ("start", None) => steps.push(Step::Start { port: port(argument), command: block(&mut lines) }),
            ("start", Some((at, command))) => {
                steps.push(Step::Start { port: port(at), command: command.to_owned() });
            }
            ("run", None) => steps.push(Step::Run(block(&mut lines))),
            ("shows", None) => steps.push(Step::Shows(block(&mut lines))),
            ("files of", None) => {
                let files = self::steps(&read(argument)).into_iter();
                steps.extend(files.filter(|step| matches!(step, Step::File { .. })));
            }
            // A mistyped marker must not turn a test off; other comments do not stand in front of
            // code.
            _ => {
                let in_front_of_code = lines.peek().is_some_and(|line| line.starts_with("```"));
                assert!(!in_front_of_code, "no marker is called {kind:?}");
            }
        }
    }
    steps
}

fn port(text: &str) -> u16 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no port"))
}

/// The code block that begins on the next line.
fn block<'a>(lines: &mut impl Iterator<Item = &'a str>) -> String {
    let fence = lines.next().unwrap_or_default();
    assert!(fence.starts_with("```"), "a marker stands in front of {fence:?}, not of a code block");
    let mut text = String::new();
    for line in lines.take_while(|line| *line != "```") {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[test]
fn steps_are_read_in_their_order() {
    let page = "text\n<!-- file: a.py -->\n```python\nx = 1\n```\n<!-- start: 3000 -->\n```sh\npython3 a.py\n```\n\
                <!-- start: 80, semel -->\n<!-- run -->\n```sh\ncurl\nls\n```\n<!-- shows -->\n```text\nok\n```\n```sh\nnot this\n```\n";
    let expected = [
        Step::File { name: "a.py".to_owned(), text: "x = 1\n".to_owned() },
        Step::Start { port: 3000, command: "python3 a.py\n".to_owned() },
        Step::Start { port: 80, command: "semel".to_owned() },
        Step::Run("curl\nls\n".to_owned()),
        Step::Shows("ok\n".to_owned()),
    ];
    assert_eq!(steps(page), expected);
}
