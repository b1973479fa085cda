//! Lists of the documentation that have to be those of the code.

use semel::http::PROXY_HEADERS;

use crate::page::{read, root};

#[test]
fn every_header_of_a_proxy_is_on_the_page_and_no_other() {
    let page = read("docs/gateway.md");
    let mut lines = page.lines().skip_while(|line| !line.starts_with("- a header by which a proxy says"));
    let list = lines.nth(1).expect("the list follows");
    let names = list.split('`').skip(1).step_by(2).map(str::to_ascii_lowercase);
    assert_eq!(names.collect::<Vec<_>>(), PROXY_HEADERS);
}

/// The last cell of each row names files, and behind a colon their tests.
#[test]
fn every_attack_has_a_test_that_exists() {
    let page = read("SECURITY.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").collect();
        let [_, _, _, tests] = cells[..] else { panic!("{row} has not four cells") };
        let mut text = None;
        for name in tests.split('`').skip(1).step_by(2) {
            if name.ends_with(".rs") {
                let path =
                    if name.contains('/') { name.to_owned() } else { format!("server/tests/gateway/{name}") };
                assert!(root().join(&path).is_file(), "there is no {path}: {row}");
                text = Some(read(&path));
            } else {
                let text = text.as_ref().expect("a file is named first");
                assert!(text.contains(&format!("fn {name}(")), "there is no {name}: {row}");
            }
        }
        assert!(text.is_some(), "no test: {row}");
    }
}
