//! The settings of a gateway, its view of them, and the errors with which it refuses to start.

use std::process::Command;

use serde_json::Value;
use testkit::stores::postgres::database;

use crate::process::Setup;
use crate::upstream::{Upstream, answer};

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let upstream = Upstream::counting().await;
    let taken = upstream.address.to_string();
    let says = format!("could not listen on {taken}");
    for flag in ["--listen", "--admin"] {
        let ended = Setup::before(upstream.address).with(flag, &taken).run(&["gateway"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.complained.contains(&says), "{ended:?}");
        assert!(!ended.complained.contains("panicked"), "{ended:?}");
    }
}

#[test]
fn a_wrong_flag_is_told_with_code_two_and_a_wrong_setting_with_code_one() {
    let setup = || Setup::new().with("--upstream", "http://127.0.0.1:1");
    for (flag, value, code, says) in [
        ("--nonsense", "1", 2, "unexpected argument '--nonsense'"),
        ("--lease", "10", 2, "write it with a unit"),
        ("--policy", "never", 2, "possible values: hold, retry, transactional"),
        ("--listen", "everywhere", 2, "invalid value 'everywhere' for '--listen <ADDRESS>'"),
        ("--max-body", "much", 2, "is not a size"),
        ("--scope", "everyone", 2, "is none of `credentials`"),
        ("--upstream", "localhost:3000", 1, "is not a URL such as http://127.0.0.1:3000"),
        ("--upstream", "http://a/b", 1, "has a path"),
        ("--lease", "1ms", 1, "lease of 1ms is not within"),
        ("--max-connections", "0", 1, "max-connections is not within"),
        ("--tls-cert", "cert.pem", 1, "tls-cert needs tls-key"),
        ("--config", "/no/where.toml", 1, "could not read /no/where.toml"),
        ("--upstream-ca", "/no/where.pem", 1, "could not read certificates from /no/where.pem"),
        ("--store", "mysql://root@db", 1, "it is none of sqlite:FILE, postgres://"),
        ("--store", "sqlite:/no/where/semel.db", 1, "could not open the store sqlite:/no/where/semel.db"),
        (
            "--store",
            "postgres://ann:secret@127.0.0.1:1/app",
            1,
            "could not open the store postgres://***@127.0.0.1:1/app",
        ),
        ("--policy", "transactional", 1, "the policy `transactional` needs a Postgres store"),
        ("--cache", "memcached://a", 1, "it is neither redis://HOST nor memory:64MiB"),
    ] {
        let ended = setup().with(flag, value).run(&["gateway"]);
        assert_eq!(ended.code, Some(code), "{flag} {value}: {ended:?}");
        assert!(ended.complained.contains(says), "{flag} {value}: {ended:?}");
        assert!(!ended.complained.contains("ann:"), "{ended:?}");
    }
    let ended = Setup::new().run(&["gateway"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.complained.contains("there is no upstream"), "{ended:?}");
}

/// The processes of the older version that may be at work would take over held keys, or could not
/// read what the newer ones write.
#[tokio::test]
async fn a_migration_that_older_processes_cannot_run_beside_is_left_to_the_operator() {
    for is_postgres in [false, true] {
        let setup = Setup::new().with("--upstream", "http://127.0.0.1:1").with("--migrate", "true");
        let url = match is_postgres {
            true => database().await,
            false => format!("sqlite:{}", setup.path("semel.db").display()),
        };
        let setup = setup.with("--store", &url);
        let migrate = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_semel"));
            command.arg("migrate").args(words).args(["--store", &url]);
            let output = command.output().expect("it can be started");
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).expect("text")
        };
        let starts = async || {
            let mut gateway = setup.start().await;
            gateway.signal("TERM");
            assert_eq!(gateway.ended().await, Some(0));
        };
        starts().await;
        migrate(&["down", "--to", "1", "--yes"]);
        let ended = setup.run(&["gateway"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let advice = "older version cannot run beside migration 2 (retention): stop all of them, run `semel migrate up --yes`";
        assert!(ended.complained.contains(advice), "{ended:?}");
        let status = migrate(&["status", "--output", "json"]);
        let second: Value = serde_json::from_str(status.lines().nth(1).expect("a step")).expect("JSON");
        assert!(second["applied_at"].is_null(), "{second}");
        migrate(&["up", "--yes"]);
        starts().await;
    }
}

#[test]
fn a_configuration_can_be_checked() {
    let good = "upstream = 'http://a'\nlease = '10s'\n[[route]]\npath = '/charges'\npolicy = 'retry'";
    let ended = Setup::new().with_file(good).run(&["config", "check"]);
    assert_eq!((ended.code, &*ended.complained), (Some(0), ""));
    let shown: Value = serde_json::from_str(&ended.said).expect("JSON");
    assert_eq!((&shown["lease"], &shown["route"][0]["policy"]), (&"10s".into(), &"retry".into()));
    for (bad, says) in [
        ("upstream = 'http://a'\nleese = '10s'", "there is no setting `leese`"),
        ("upstream = 'http://a'\nlease = 10", "line 2"),
        (
            "upstream = 'http://a'\ncache = 'redis://b'\n[[route]]\npath = '/a'\npolicy = 'transactional'",
            "route /a: the policy `transactional` needs a Postgres store",
        ),
        ("[[route]]\npath = 'charges'\nupstream = 'http://a'", "does not begin with a slash"),
    ] {
        let ended = Setup::new().with_file(bad).run(&["config", "check"]);
        assert_eq!((ended.code, &*ended.said), (Some(1), ""), "{bad}");
        assert!(ended.complained.contains(says), "{bad}: {}", ended.complained);
    }
}

#[test]
fn a_flag_goes_before_a_variable_and_that_before_the_file() {
    let file = "upstream = 'http://file'\nrealm = 'file'\nlease = '10s'\nretention = '3h'";
    let setup = Setup::new()
        .with_file(file)
        .with_variable("SEMEL_REALM", "variable")
        .with_variable("SEMEL_LEASE", "20s")
        .with_variable("SEMEL_METHODS", "POST,PUT")
        .with_variable("SEMEL_REQUIRE_KEY", "true")
        .with("--realm", "flag");
    let ended = setup.run(&["config", "check"]);
    let shown: Value = serde_json::from_str(&ended.said).unwrap_or_else(|_| panic!("{ended:?}"));
    for (name, value) in [
        ("realm", "flag"),
        ("lease", "20s"),
        ("retention", "3h"),
        ("upstream", "http://file"),
        ("wait", "0s"),
    ] {
        assert_eq!(shown[name], value, "{name}");
    }
    assert_eq!(
        (&shown["methods"], &shown["require-key"]),
        (&serde_json::json!(["POST", "PUT"]), &true.into())
    );
}

#[test]
fn no_secret_is_shown() {
    for (flag, value) in [
        ("--store", "postgres://ann:s3cret@db/app?sslpassword=s3cret"),
        ("--store", "postgres://ann:s3?cret@db/app"),
        ("--store", "postgres://ann:s3/cret@db/app"),
        ("--store", "postgres://ann:s3#cret@db/app"),
        ("--store", "postgres://db/app?user=ann&password=s3@cret"),
        ("--store", "host=db password=s3://cret"),
        ("--cache", "redis://:s3cret@cache"),
        ("--cache", "redis://cache?password=s3@cret"),
    ] {
        let ended = Setup::new().with("--upstream", "http://a").with(flag, value).run(&["config", "check"]);
        // The name of a setting is not a secret.
        let told = (ended.said + &ended.complained).replace("principal-secret-file", "");
        assert!(told.contains("***") && !told.contains("s3") && !told.contains("cret"), "{value}: {told}");
    }
    for upstream in
        ["http://ann:s3cret@a", "http://ann:s3cret@a/b", "ftp://ann:s3cret@a", "http://ann:s3cret@a b"]
    {
        let ended = Setup::new().with("--upstream", upstream).run(&["config", "check"]);
        assert_eq!(ended.code, Some(1), "{upstream}");
        assert!(!ended.complained.contains("s3cret"), "{upstream}: {}", ended.complained);
    }
}

#[tokio::test]
async fn requests_and_their_results_are_counted() {
    let upstream = Upstream::start(|seen| async move {
        match seen.line().contains("fail") {
            true => answer("500 Oops", "", ""),
            false => answer("200 OK", "", "ok"),
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    gateway.post("secret-key", "{}").await;
    gateway.post("secret-key", "{}").await;
    gateway.post("secret-key", "other").await;
    gateway.ask("GET /fail", "", "").await;
    let shown = gateway.admin("/metrics").await;
    assert_eq!(shown.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = shown.text();
    for line in [
        "semel_gateway_responses_total{class=\"2xx\"} 2",
        "semel_gateway_responses_total{class=\"4xx\"} 1",
        "semel_gateway_responses_total{class=\"5xx\"} 1",
        "semel_gateway_upstream_seconds_count 2",
        "semel_claims_total{",
        "answer=\"granted\"",
        "answer=\"done\"",
        "answer=\"mismatch\"",
        "semel_gateway_connections ",
    ] {
        assert!(text.contains(line), "no {line} in {text}");
    }
    assert!(!text.contains("secret-key"));
    assert!(!gateway.log().contains("secret-key"));
}

#[tokio::test]
async fn the_admin_answers_what_it_knows() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    for (path, status, says) in [
        ("/livez", 200, "alive"),
        ("/readyz", 200, "ready"),
        ("/config", 200, "\"policy\": \"hold\""),
        ("/", 200, "/metrics"),
        ("/charges", 404, "/livez"),
    ] {
        let reply = gateway.admin(path).await;
        assert_eq!((reply.status, reply.header("cache-control")), (status, Some("no-store")), "{path}");
        assert!(reply.text().contains(says), "{path}: {}", reply.text());
    }
    let mut wire = crate::wire::Wire::to(gateway.admin).await;
    wire.send("POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await;
    let refused = wire.reply().await;
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));
    // The paths of the admin listener are not for clients.
    gateway.ask("GET /metrics", "", "").await;
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn lines_of_the_log_may_be_objects() {
    let upstream = Upstream::counting().await;
    let mut gateway = Setup::before(upstream.address).with("--log-format", "json").start().await;
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await, Some(0));
    gateway.line("stopped").await;
    for line in gateway.log().lines() {
        let object: Value = serde_json::from_str(line).expect(line);
        assert!(object["level"].is_string() && object["message"].is_string(), "{line}");
    }
}

#[test]
fn a_file_that_is_wrong_is_not_quoted() {
    for text in ["stroe = 'postgres://ann:s3cret@db/app'", "\n\nstore = 'postgres://ann:s3cret@db/app"] {
        let ended = Setup::new().with_file(text).run(&["config", "check"]);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let line = text.matches('\n').count() + 1;
        assert!(ended.complained.contains(&format!("line {line}: ")), "{ended:?}");
        assert!(!ended.complained.contains("s3cret"), "{ended:?}");
    }
}

#[test]
fn the_check_finds_settings_with_which_a_gateway_cannot_start() {
    for (flag, value, says) in [
        (
            "--store",
            "mysql://db",
            "the store mysql://db cannot be used: store refused: it is none of sqlite:FILE",
        ),
        ("--store", "sqlite:", "it names no file"),
        ("--cache", "memory:much", "the cache memory:much cannot be used"),
        ("--cache", "memcached://a", "it is neither redis://HOST nor memory:64MiB"),
        ("--upstream-ca", "/nowhere.pem", "could not read certificates from /nowhere.pem"),
    ] {
        let setup = Setup::new().with("--upstream", "http://a").with(flag, value);
        let ended = setup.run(&["config", "check"]);
        assert_eq!(ended.code, Some(1), "{value}: {ended:?}");
        assert!(ended.complained.contains(says), "{value}: {ended:?}");
    }
}

#[tokio::test]
async fn a_cache_that_is_away_does_not_keep_a_gateway_from_starting() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address).with("--cache", "redis://127.0.0.1:1");
    let gateway = setup.start().await;
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), false));
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert!(gateway.log().contains("the cache is down"), "{}", gateway.log());
}

#[tokio::test]
async fn the_record_names_the_gateway_that_holds_it() {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address);
    let gateway = setup.start().await;
    let asking = gateway.posting("k", "{}");
    stop.arrival().await;
    let here = setup.without("--listen").without("--admin").without("--upstream").without("--anonymous");
    let ended = here.run(&["inspect", "k", "--output", "json"]);
    let record: Value = serde_json::from_str(&ended.said).unwrap_or_else(|_| panic!("{ended:?}"));
    let owner = record["owner"].as_str().unwrap_or_default();
    assert!(owner.contains(&gateway.address.to_string()) && owner.contains("process "), "{owner}");
    stop.go();
    asking.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_log_of_the_start_names_every_bound() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address).with("--max-store", "7MiB").with("--max-attempts", "77");
    let mut gateway = setup.with("--max-new-per-caller", "5/1h").with("--max-body", "33KiB").start().await;
    let whole = gateway.line("bounds of the gateway").await;
    for bound in [
        "max_connections=10000",
        "max_attempts=77",
        "max_memory=256MiB",
        "max_store=\"7MiB\"",
        "max_unsettled_per_caller=\"none\"",
        "max_new_per_caller=\"5/1h\"",
        "header_timeout=30s",
        "body_timeout=30s",
        "websocket_timeout=5m",
        "drain=30s",
    ] {
        assert!(gateway.log().contains(bound), "{bound} is not in {whole}");
    }
    gateway.line("bounds of a route").await;
    for bound in ["max_body=33KiB", "max_response=1MiB", "upstream_timeout=30s", "wait=0s", "lease=30s"] {
        assert!(gateway.log().contains(bound), "{bound} is not in {}", gateway.log());
    }
    assert!(!gateway.log().contains("nothing limits the size of the store"), "{}", gateway.log());
    assert!(!gateway.log().contains("bounds of requests that no route covers"), "{}", gateway.log());
}

#[tokio::test]
async fn the_log_of_the_start_names_the_bounds_of_requests_that_no_route_covers() {
    let upstream = Upstream::counting().await;
    let file = format!(
        "upstream = 'http://{}'\nupstream-timeout = '7s'\n[[route]]\npath = '/charges'\nupstream-timeout = '9s'",
        upstream.address
    );
    let mut gateway = Setup::new().with_file(&file).start().await;
    let line = gateway.line("bounds of requests that no route covers").await;
    assert!(line.contains("upstream_timeout=7s"), "{line}");
}

#[tokio::test]
async fn a_store_without_a_limit_is_warned_of_where_others_can_reach_the_gateway() {
    let upstream = Upstream::counting().await;
    for (listen, limit, is_warned) in [
        ("0.0.0.0:0", None, true),
        ("[::]:0", None, true),
        ("0.0.0.0:0", Some("1GiB"), false),
        ("127.0.0.1:0", None, false),
    ] {
        let setup = Setup::before(upstream.address).with("--listen", listen);
        let setup = match limit {
            Some(limit) => setup.with("--max-store", limit),
            None => setup,
        };
        let gateway = setup.start().await;
        let log = gateway.log();
        assert_eq!(
            log.contains("nothing limits the size of the store"),
            is_warned,
            "{listen} {limit:?}: {log}"
        );
    }
}
