//! The links between the pages, and the summary, which has every page.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::page::{all, read, root};

/// The targets of the links of a page, without those in code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let mut parts = line.split("](");
        parts.next();
        links.extend(parts.filter_map(|part| Some(part[..part.find(')')?].to_owned())));
    }
    links
}

/// The fragments of a page: one for each heading, made as GitHub and mdBook make them.
fn fragments(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let fragment = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(fragment).collect()
}

/// A path without `..`, from the root of the repository.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn links_between_pages_lead_to_a_file_and_a_heading() {
    let mut followed = 0;
    for page in all() {
        for link in links(&read(&page)) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let folder = Path::new(&page).parent().expect("a page is in a folder");
            let target = if file.is_empty() { PathBuf::from(&page) } else { plain(&folder.join(file)) };
            assert!(root().join(&target).exists(), "{page} links to {link}, which is not there");
            if !fragment.is_empty() {
                let there = fragments(&read(&target.display().to_string()));
                assert!(there.contains(fragment), "{page} links to {link}; its headings are {there:?}");
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links were found");
}

#[test]
fn the_summary_has_every_page_once() {
    let listed = links(&read("docs/SUMMARY.md"));
    let once: BTreeSet<String> = listed.iter().map(|link| format!("docs/{link}")).collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let pages = all().into_iter().filter(|page| page != "README.md" && page != "docs/SUMMARY.md");
    assert_eq!(once, pages.collect(), "the summary on the left, the folder on the right");
}
