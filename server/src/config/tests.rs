//! The configuration from settings, and the messages about mistakes in them.

use semel::Policy;

use super::*;

fn config(text: &str) -> Result<Config> {
    Config::new(toml::from_str(text)?)
}

fn refused(text: &str) -> String {
    format!("{:#}", config(text).expect_err(text))
}

#[test]
fn an_upstream_is_enough() {
    let config = config("upstream = 'http://127.0.0.1:3000'").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.all.policy, Policy::hold());
    assert!(config.routes.is_empty());
}

#[test]
fn a_route_takes_from_all_what_it_does_not_say() {
    let config = config(
        "upstream = 'http://a'
        lease = '10s'
        require-key = true
        [[route]]
        path = '/charges'
        upstream = 'https://b:8443'
        policy = 'retry'
        required = false
        [[route]]
        path = '/orders/{id}'",
    )
    .unwrap();
    let (_, charges) = &config.routes[0];
    assert_eq!(charges.upstream.as_ref().unwrap().to_string(), "https://b:8443");
    assert_eq!(charges.policy, Policy::retry().with_lease(Duration::from_secs(10)));
    assert!(!charges.require_key);
    let (_, orders) = &config.routes[1];
    assert_eq!(orders.upstream.as_ref().unwrap().to_string(), "http://a");
    assert!(orders.require_key);
}

#[test]
fn a_key_that_no_route_covers_is_refused_once_there_are_routes() {
    let uncovered = |text: &str| config(&format!("upstream = 'http://a'\n{text}")).unwrap().uncovered;
    assert_eq!(uncovered(""), Uncovered::Pass);
    assert_eq!(uncovered("[[route]]\npath = '/a'"), Uncovered::Refuse);
    assert_eq!(uncovered("uncovered = 'pass'\n[[route]]\npath = '/a'"), Uncovered::Pass);
}

#[test]
fn flags_go_before_the_file() {
    let flags = Settings { realm: Some("shop".to_owned()), ..Settings::default() };
    let file = toml::from_str("realm = 'bank'\nupstream = 'http://a'\nstore = 'memory:'").unwrap();
    let config = Config::new(flags.or(file)).unwrap();
    assert_eq!((&*config.realm, config.place.store.as_deref()), ("shop", Some("memory:")));
}

#[test]
fn what_is_wrong_is_named() {
    for (text, says) in [
        ("", "there is no upstream"),
        ("upstream = 'ftp://a'", "upstream `ftp://a` is not a URL such as"),
        ("upstream = 'http://a/b'", "has a path"),
        ("upstream = 'http://a'\nlease = '10'", "write it with a unit"),
        ("upstream = 'http://a'\nlease = '1ms'", "lease of 1ms is not within"),
        ("upstream = 'http://a'\nretention = '1s'", "retention of 1s is shorter than the lease"),
        ("upstream = 'http://a'\nmax-body = '1 apple'", "is not a size"),
        ("upstream = 'http://a'\nmethods = ['GET']", "a key does not count on GET"),
        ("upstream = 'http://a'\nmethods = ['post']", "in capitals"),
        ("upstream = 'http://a'\nscope = 'me'", "is none of `credentials`"),
        ("upstream = 'http://a'\nrealm = ''", "realm"),
        ("upstream = 'http://a'\ntls-cert = 'a'", "tls-cert needs tls-key"),
        ("upstream = 'http://a'\npolicy = 'transactional'", "sqlite:semel.db is none: set the store"),
        (
            "upstream = 'http://a'\nstore = 'redis://a'\n[[route]]\npath = '/a'\npolicy = 'transactional'",
            "route /a: the policy `transactional` needs a Postgres store",
        ),
        ("upstream = 'http://a'\npolicy = 'never'", "unknown variant `never`"),
        ("upstream = 'http://a'\nleese = '1s'", "there is no setting `leese`"),
        ("[[route]]\npath = '/a'", "route /a: there is no upstream"),
        ("[[route]]\nupstream = 'http://a'", "a route needs a path"),
        ("[[route]]\npath = 'a'\nupstream = 'http://a'", "does not begin with"),
        (
            "upstream = 'http://a'\nrecord-header = ['Set-Cookie']",
            "record-header: the header set-cookie belongs",
        ),
        ("upstream = 'http://a'\nrecord-header = ['a b']", "`a b` is not the name of a header"),
        ("upstream = 'http://a'\nuncovered = 'maybe'", "unknown variant `maybe`"),
        ("upstream = 'http://a'\ncase = 'lower'", "unknown variant `lower`"),
        ("upstream = 'http://a'\nadmin-token-file = '/nowhere/token'", "could not read /nowhere/token"),
        ("upstream = 'http://a'\nmax-attempts = 0", "max-attempts is not within 1 to 1000000"),
        ("upstream = 'http://a'\nmax-store = '1000records'", "counts bytes in a SQLite store"),
        ("upstream = 'http://a'\nstore = 'memory:'\nmax-store = '1MiB'", "counts records in a memory store"),
        ("upstream = 'http://a'\nmax-new-per-caller = '5'", "`5` is not a rate"),
        ("upstream = 'http://a'\nmax-unsettled-per-caller = 0", "would refuse every request"),
        ("upstream = 'http://a'\nmax-memory = '1MiB'", "max-body of 1MiB is more than half of max-memory"),
        (
            "upstream = 'http://a'\nmax-memory = '4MiB'\n[[route]]\npath = '/a'\nmax-response = '3MiB'",
            "route /a: max-response of 3MiB is more than half of max-memory",
        ),
        (
            "upstream = 'http://a'\nscope = 'header:X_User'",
            "the header x_user has an underscore, and such headers are removed from requests: name it x-user",
        ),
        (
            "upstream = 'http://a'\nunderscores = 'allow'\nscope = 'credentials:x_real_ip'",
            "a service could take it for x-real-ip",
        ),
        (
            "upstream = 'http://a'\nscope = 'header:Semel-User'",
            "the header semel-user is removed from requests",
        ),
        ("upstream = 'http://a'\njwks = 'keys.json'", "jwks is set, and no scope is `jwt`"),
        ("upstream = 'http://a'\nclaim = 'uid'", "claim is set, and no scope is `jwt`"),
        (
            "upstream = 'http://a'\n[[route]]\npath = '/a'\nissuer = 'i'",
            "route /a: issuer is set, and no scope is `jwt`",
        ),
        ("upstream = 'http://a'\nwebsocket-timeout = '0s'", "websocket-timeout of 0s is not within"),
        ("upstream = 'http://a'\nheader-timeout = '0s'", "header-timeout of 0s is not within"),
    ] {
        assert!(refused(text).contains(says), "{text}: {}", refused(text));
    }
}

#[test]
fn a_scope_by_a_header_with_an_underscore_needs_such_headers() {
    config("upstream = 'http://a'\nunderscores = 'allow'\nscope = 'header:X_User'").unwrap();
}

#[test]
fn tokens_that_only_a_route_needs_may_be_described_for_all() {
    let all = "upstream = 'http://a'\njwks = 'k'\nissuer = 'i'\naudience = 'a'";
    config(&format!("{all}\n[[route]]\npath = '/a'\nscope = 'jwt'\n[[route]]\npath = '/b'")).unwrap();
}

#[test]
fn an_error_of_the_file_shows_the_line() {
    let error = refused("upstream = 'http://a'\n[[route]]\npath = '/a'\nlease = 'soon'");
    assert!(error.contains("line 4"), "{error}");
    let error = refused("upstream = 'http://a'\n\nleese = '10s'");
    assert!(error.contains("line 3"), "{error}");
}
