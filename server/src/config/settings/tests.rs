//! The settings in the help, in the file and in the documentation.

use std::collections::BTreeMap;
use std::path::Path;

use clap::CommandFactory;
use semel::Policy;
use semel::http::IdempotencyLayer;

use super::*;
use crate::args::Args;

/// Every setting, and its default as the help shows it.
fn all() -> BTreeMap<String, String> {
    let args = Args::command();
    let gateway = args.find_subcommand("gateway").expect("the command");
    let keys = [Settings::KEYS, LimitSettings::KEYS, StoreSettings::KEYS, RouteSettings::KEYS].concat();
    let keys = keys.into_iter().filter(|key| *key != "route");
    let default = |key: &str| {
        let flag = gateway.get_arguments().find(|flag| flag.get_long() == Some(key)).expect(key);
        let help = flag.get_help().expect(key).to_string();
        help.split_once("[default: ")
            .map_or_else(String::new, |(_, rest)| rest.trim_end_matches(']').to_owned())
    };
    keys.map(|key| (key.to_owned(), default(key))).collect()
}

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    std::fs::read_to_string(path).expect(file)
}

#[test]
fn the_help_shows_the_defaults_of_the_library() {
    let (shown, policy) = (all(), Policy::hold());
    let terms = policy.terms();
    for (key, default) in [
        ("lease", terms.lease()),
        ("retention", terms.retention()),
        ("wait", policy.wait()),
        ("body-timeout", IdempotencyLayer::DEFAULT_REQUEST_TIMEOUT),
    ] {
        assert_eq!(shown[key].parse(), Ok(Span(default)), "{key}");
    }
    let bodies = [
        ("max-body", IdempotencyLayer::DEFAULT_MAX_REQUEST_BYTES),
        ("max-response", policy.max_body_bytes()),
    ];
    for (key, default) in bodies {
        assert_eq!(shown[key].parse(), Ok(Size(default)), "{key}");
    }
    assert_eq!(shown["realm"], IdempotencyLayer::DEFAULT_REALM);
    assert_eq!(
        shown["methods"],
        IdempotencyLayer::DEFAULT_METHODS.map(|method| method.to_string()).join(",")
    );
}

#[test]
fn every_flag_is_a_key_of_the_file() {
    let args = Args::command();
    let gateway = args.find_subcommand("gateway").expect("the command");
    let flags = gateway.get_arguments().filter_map(clap::Arg::get_long);
    // The file cannot name itself.
    let flags = flags.filter(|flag| !["config", "help", "version"].contains(flag));
    let known = all();
    assert_eq!(flags.filter(|flag| !known.contains_key(*flag)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_page_has_every_setting_with_its_default() {
    let page = read("docs/gateway.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Settings\n")).expect("a section");
    let rows = section.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        Some((cells.next()?.trim_end_matches('`').to_owned(), cells.next()?.trim().to_owned()))
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), all());
}

#[test]
fn the_packaged_file_has_every_setting_and_each_of_its_lines_can_be_used() {
    let file = read("packaging/semel.toml");
    let general = file.split("[[route]]").next().expect("the settings of all routes");
    let settings = file.lines().filter_map(|line| {
        let line = line.trim_start_matches("# ");
        let (key, _) = line.split_once(" = ")?;
        key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-').then_some((key, line))
    });
    let settings: Vec<_> = settings.collect();
    for key in all().keys() {
        assert!(settings.iter().any(|(named, _)| named == key), "{key} is not in the file");
    }
    for (key, line) in settings.into_iter().filter(|(key, _)| *key != "path") {
        let read = toml::from_str::<Settings>(line);
        assert!(read.is_ok(), "{key}: {line}: {read:?}");
    }
    toml::from_str::<Settings>(general).expect("the file as it is");
}
