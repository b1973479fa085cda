//! The commands that docs/redis.md lists: those of the source, and enough for a login that has no
//! other commands.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel::admin::{Inspect, ListQuery, OperatorAck, Prune};
use semel::store::Hot;
use semel::{Fence, Outcome, RedisStore, Store};
use testkit::claims::{ask, done, granted, lease};
use testkit::servers::RedisServers;
use testkit::stores::redis::{Place, connection, say, settled};

use crate::connecting::pair;

type Commands = BTreeSet<String>;

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/redis.md");
    fs::read_to_string(page).expect("the page is there")
}

/// The commands that the page lists for a case.
fn listed(when: &str) -> Commands {
    let page = page();
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {when} | ")));
    let row = row.unwrap_or_else(|| panic!("the page does not say what is needed {when}"));
    row.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The line of the page that creates a login.
fn login() -> String {
    let page = page();
    page.lines().find(|line| line.starts_with("ACL SETUSER ")).expect("the page has one").to_owned()
}

/// The contents of the files with this ending, in a folder and in the folders in it.
fn sources(folder: &str, ending: &str) -> Vec<String> {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/redis").join(folder));
    let files: Vec<PathBuf> =
        files.into_iter().filter(|file| file.extension().is_some_and(|own| own == ending)).collect();
    assert!(!files.is_empty());
    files.iter().map(|file| fs::read_to_string(file).expect("source is text")).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the source is there").map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| if entry.is_dir() { files(&entry) } else { vec![entry] }).collect()
}

/// The words in quotation marks after each of these.
fn words_after(text: &str, before: &str, mark: char) -> Vec<(String, usize)> {
    let found = text.match_indices(before).map(|(at, _)| at + before.len());
    found.map(|at| (text[at..].split(mark).next().unwrap().to_owned(), at)).collect()
}

/// The commands that the scripts call.
fn called_by_scripts() -> Commands {
    let all = sources("lua", "lua");
    all.iter().flat_map(|text| words_after(text, "redis.call('", '\'')).map(|(word, _)| word).collect()
}

/// The commands that are sent directly, with the second word of those that have one.
fn sent() -> Commands {
    let mut commands = Commands::new();
    for text in sources("", "rs") {
        for (word, at) in words_after(&text, "cmd(\"", '"') {
            if ["CLIENT", "CLUSTER", "SCRIPT", "SENTINEL"].contains(&word.as_str()) {
                let (second, _) = words_after(&text[at..], ".arg(\"", '"').remove(0);
                commands.insert(format!("{word} {second}"));
            } else {
                commands.insert(word);
            }
        }
    }
    commands
}

#[test]
fn the_page_lists_the_commands_that_are_used() {
    assert_eq!(listed("within scripts"), called_by_scripts());
    let cases = ["always", "in a cluster", "with replicas to wait for", "on sentinels"].map(listed);
    assert_eq!(cases.into_iter().flatten().collect::<Commands>(), sent());
}

#[test]
fn the_login_of_the_page_may_do_what_the_page_lists_and_no_more() {
    let granted: Commands =
        login().split(' ').filter_map(|word| word.strip_prefix('+')).map(spelled).collect();
    assert_eq!(granted, &listed("always") | &listed("within scripts"));
}

/// A command of a login, as the page lists it.
fn spelled(granted: &str) -> String {
    granted.replace('|', " ").to_ascii_uppercase()
}

#[test]
fn the_options_that_the_page_names_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let mut source = sources("", "rs").concat();
    source.push_str(&fs::read_to_string(folder.join("tiered/options.rs")).unwrap());
    let page = page();
    let named = page.match_indices("with_").map(|(at, _)| {
        let end = page[at..].find(|letter: char| !letter.is_ascii_lowercase() && letter != '_');
        &page[at..at + end.unwrap()]
    });
    let named: BTreeSet<&str> = named.collect();
    assert!(named.contains("with_retention"), "{named:?}");
    for option in named {
        assert!(source.contains(&format!("pub fn {option}(")), "there is no {option}");
    }
}

#[tokio::test]
async fn a_login_with_the_listed_commands_alone_can_do_everything() {
    let mut servers = RedisServers::new().unwrap();
    let (master, _) = pair(&mut servers, "").await;
    let mut place = Place::on(&master);
    let mut admin = connection(&master).await;
    let login = login().replace("~semel", &format!("~{}", place.prefix));
    assert!(login.contains(" >password "), "{login}");
    let waits: Vec<_> =
        listed("with replicas to wait for").iter().map(|word| format!("+{}", word.to_lowercase())).collect();
    say::<()>(&mut admin, &format!("{login} {}", waits.join(" "))).await;
    say::<()>(&mut admin, "CONFIG RESETSTAT").await;
    let sign = if master.contains('?') { '&' } else { '?' };
    place.url = format!("{master}{sign}user=semel&pass=password");

    let options = place.options().with_replicas(1).with_timeout(Duration::from_secs(5));
    do_everything(&options.connect().await.unwrap()).await;

    let refused: Vec<Vec<redis::Value>> = say(&mut admin, "ACL LOG").await;
    // The commands that the driver tries first, and can do without.
    let refused: Vec<String> = refused.iter().map(|entry| format!("{entry:?}")).collect();
    let refused: Vec<_> = refused.iter().filter(|entry| !entry.contains("client|setinfo")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let stats: String = say(&mut admin, "INFO commandstats").await;
    let used: Commands = words_after(&stats, "cmdstat_", ':').iter().map(|(word, _)| spelled(word)).collect();
    let listed = ["always", "within scripts", "with replicas to wait for"].map(listed);
    let unused: Commands = &listed.into_iter().flatten().collect::<Commands>() - &used;
    assert!(unused.is_empty(), "these are listed and were not used: {unused:?}");
}

/// Every verb of a store, of an operator, and of a hot store.
async fn do_everything(store: &RedisStore) {
    let key = done(store, "done").await;
    // This is a repeat, which makes sure that the replica has the record.
    assert!(matches!(store.claim(&ask(store, "done").await).await.unwrap(), semel::store::Claim::Done(_)));

    let released = granted(store, &ask(store, "other").await).await;
    assert!(store.renew(&released, Duration::from_secs(30)).await.unwrap().stands());
    assert!(store.release(&released).await.unwrap().stands());
    let asked = ask(store, "other").await;
    let held = lease(settled(async || store.claim(&asked).await).await);
    assert!(store.hold(&held, "who knows").await.unwrap().stands());
    let outcome = Outcome::json("found out").unwrap();
    let resolved = store.resolve(held.key(), held.fence(), &outcome, "looked").await.unwrap();
    assert_eq!(resolved, OperatorAck::Applied);

    let lost = granted(store, &ask(store, "lost").await).await;
    assert!(store.abandon(&lost, "broke off").await.unwrap().stands());
    assert_eq!(store.reset(lost.key(), lost.fence(), "did not happen").await.unwrap(), OperatorAck::Applied);
    let asked = ask(store, "voided").await;
    let voided = granted(store, &asked).await;
    let _early = store.void(voided.key(), asked.token, asked.not_after).await.unwrap();

    let found = store.find(&key).await.unwrap().unwrap();
    assert_eq!(store.find_many(&[key.clone(), lost.key().clone()]).await.unwrap().len(), 2);
    assert_eq!(store.list(&ListQuery::default()).await.unwrap().records.len(), 4);
    assert!(store.stale(&ListQuery::default()).await.unwrap().records.is_empty());
    assert_eq!(store.stats().await.unwrap().done, 2);
    assert_eq!(store.forget(&key, found.fence, "asked to").await.unwrap(), OperatorAck::Applied);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 1);

    assert!(store.recall(&key).await.unwrap().is_none());
    store.bury(&key, Fence::new(7), Duration::from_secs(30)).await.unwrap();
}
