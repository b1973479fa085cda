//! Services in other languages that complete in their own transaction, called with the commands of
//! the docs.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use testkit::programs;
use testkit::stores::postgres::database;
use tokio_postgres::{Client, NoTls};

use crate::process::{Gateway, Setup};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The code of this language on a page, by line.
fn code(page: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(page)).expect("the page is there");
    let blocks = text.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
    let blocks = blocks.filter(|(own, _)| *own == language);
    blocks.flat_map(|(_, lines)| lines.lines()).map(str::to_owned).collect()
}

/// A running example, which ends when this is dropped.
struct Service {
    process: Child,
    port: u16,
}

impl Service {
    fn start(mut interpreter: Command, example: &str, database: &str) -> Self {
        interpreter.arg(root().join("examples").join(example)).args(["0", database]);
        programs::with_psql(&mut interpreter).expect("psql is with the server");
        let mut process = interpreter.stdout(Stdio::piped()).spawn().expect("the interpreter runs");
        let mut out = BufReader::new(process.stdout.take().expect("it has an output"));
        let mut line = String::new();
        out.read_line(&mut line).expect("its output is text");
        let port = line.trim().strip_prefix("listening on ").and_then(|port| port.parse().ok());
        Self { process, port: port.unwrap_or_else(|| panic!("{example} said {line:?}")) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _dead = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// Runs a line of the docs against this gateway, with this key, and returns the output of curl.
fn ask(line: &str, gateway: &Gateway, key: &str) -> String {
    assert!(line.contains("http://127.0.0.1:8080/") && line.contains("order-7"), "{line}");
    let line = line.replace("127.0.0.1:8080", &gateway.address.to_string()).replace("order-7", key);
    let curl = programs::curl().expect("curl is here, or can be had");
    let folder = Path::new(curl.get_program()).parent().expect("a folder").as_os_str();
    let path = [folder.to_owned(), std::env::var_os("PATH").unwrap_or_default()].join(&OsString::from(":"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("PATH", path).env("no_proxy", "*");
    shell.envs(curl.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().expect("a shell");
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

async fn ledger(database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.expect("a database");
    tokio::spawn(connection);
    client.batch_execute("create table ledger (cents bigint not null)").await.expect("a table");
    client
}

/// Regression: a quoted key reached the service with its quotation marks, and `semel.complete`
/// found no record of it: 500 for ever.
async fn quoted_and_bare_are_booked_once(interpreter: Command, example: &str) {
    let database = database().await;
    let ledger = ledger(&database).await;
    let service = Service::start(interpreter, example, &database);
    let setup = Setup::new().with("--upstream", &format!("http://127.0.0.1:{}", service.port));
    let setup = setup.with("--store", &database).with("--migrate", "true");
    let gateway = setup.with("--policy", "transactional").start().await;
    let lines = code("docs/gateway.md", "sh");
    let lines: Vec<_> = lines.iter().filter(|line| line.starts_with("curl ")).collect();
    let [quoted, bare] = lines[..] else { panic!("the docs have two such lines, not {lines:?}") };
    assert!(quoted.contains("\"order-7\"") && !bare.contains("\"order-7\""));
    for (key, first, again) in [("order-7", quoted, bare), ("50%-o'rder", bare, quoted)] {
        // The shell of the docs has the key in single quotation marks.
        let key = key.replace('\'', "'\\''");
        let first = ask(first, &gateway, &key);
        let again = ask(again, &gateway, &key);
        assert!(first.starts_with("HTTP/1.1 201 "), "{first}");
        assert!(!first.contains("idempotency-replayed"), "{first}");
        assert!(
            again.starts_with("HTTP/1.1 201 ") && again.contains("idempotency-replayed: true"),
            "{again}"
        );
        let body = |shown: &str| shown.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
        assert_eq!(body(&first), body(&again));
        assert!(body(&first).expect("a body").contains("\"booked\""), "{first}");
    }
    let booked = ledger.query_one("select count(*), sum(cents)::bigint from ledger", &[]).await.unwrap();
    assert_eq!((booked.get::<_, i64>(0), booked.get::<_, i64>(1)), (2, 2_000));
}

#[tokio::test]
async fn a_service_in_python_completes_quoted_and_bare_keys() {
    quoted_and_bare_are_booked_once(programs::python().unwrap(), "ledger.py").await;
}

#[tokio::test]
async fn a_service_in_node_completes_quoted_and_bare_keys() {
    quoted_and_bare_are_booked_once(programs::node().unwrap(), "ledger.mjs").await;
}

#[test]
fn the_statements_of_the_docs_are_those_of_the_services() {
    let statements = code("docs/gateway.md", "sql").join("\n");
    assert!(
        statements.contains("semel.complete(:'realm', :'principal', :'key', :'token', :'fence'"),
        "{statements}"
    );
    for example in ["ledger.py", "ledger.mjs"] {
        let text = std::fs::read_to_string(root().join("examples").join(example)).unwrap();
        assert!(text.contains(&statements), "{example} does not do {statements}");
    }
}
