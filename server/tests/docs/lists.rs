//! Lists of the documentation that have to be those of the code.

use semel::http::PROXY_HEADERS;

use crate::page::read;

#[test]
fn every_header_of_a_proxy_is_on_the_page_and_no_other() {
    let page = read("docs/gateway.md");
    let mut lines = page.lines().skip_while(|line| !line.starts_with("- a header by which a proxy says"));
    let list = lines.nth(1).expect("the list follows");
    let names = list.split('`').skip(1).step_by(2).map(str::to_ascii_lowercase);
    assert_eq!(names.collect::<Vec<_>>(), PROXY_HEADERS);
}
