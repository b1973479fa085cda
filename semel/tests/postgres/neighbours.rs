//! Keys that cannot be served, because of a damaged page or an uncommitted insert, and the keys
//! beside them in the same batches, which continue.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use semel::store::{Claim, Token};
use semel::{Outcome, PostgresStore, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::servers::PostgresServers;
use testkit::stores::postgres::Place;
use testkit::until::LONG;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The number of keys that cannot be served, each with a caller that tries again and again.
const VICTIMS: u32 = 6;
const NEIGHBOURS: u32 = 64;
/// The time for which neighbours are counted, in each turn.
const COUNTED: Duration = Duration::from_millis(700);

fn outcome() -> Outcome {
    Outcome::json("charged").unwrap()
}

/// The counts of the neighbours.
#[derive(Default)]
struct Count {
    done: AtomicU32,
    failed: AtomicU32,
    stop: AtomicBool,
}

/// The number of new keys that neighbours complete in a while, during which this many callers ask
/// for victims. None fails.
async fn neighbours_beside(victims: u32, store: &PostgresStore) -> u32 {
    let count = Arc::new(Count::default());
    let mut tasks = JoinSet::new();
    for number in 0..victims {
        let (store, count) = (store.clone(), Arc::clone(&count));
        tasks.spawn(async move {
            while !count.stop.load(Ordering::Relaxed) {
                let answer = store.claim(&ask(&store, &format!("victim-{number}")).await).await;
                assert!(answer.is_err(), "{answer:?}");
                sleep(Duration::from_millis(5)).await;
            }
        });
    }
    for _ in 0..NEIGHBOURS {
        let (store, count) = (store.clone(), Arc::clone(&count));
        tasks.spawn(async move {
            while !count.stop.load(Ordering::Relaxed) {
                let one = match claim_and_complete(&store).await {
                    Ok(()) => &count.done,
                    Err(error) => {
                        println!("a neighbour failed: {error}");
                        &count.failed
                    }
                };
                one.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    sleep(COUNTED).await;
    count.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    assert_eq!(count.failed.load(Ordering::Relaxed), 0, "neighbours of {victims} victims fail");
    count.done.load(Ordering::Relaxed)
}

async fn claim_and_complete(store: &PostgresStore) -> Result<(), StoreError> {
    let claim = store.claim(&ask(store, &Token::random().to_string()).await).await?;
    let Claim::Granted(lease) = claim else { panic!("{claim:?}") };
    store.complete(&lease, &outcome()).await?.applied().unwrap();
    Ok(())
}

/// Checks that neighbours keep a third of their rate at least. The rates are measured in turns,
/// because other tests run beside this one.
async fn neighbours_go_on(store: &PostgresStore) {
    let (mut by_themselves, mut beside) = (0, 0);
    for turn in 1.. {
        by_themselves += neighbours_beside(0, store).await;
        beside += neighbours_beside(VICTIMS, store).await;
        println!("by themselves {by_themselves}, beside victims {beside}");
        // Other load on the machine may spoil a turn, but not all of them.
        if turn >= 4 && beside * 3 >= by_themselves {
            return;
        }
        assert!(turn < 16, "{beside} of {by_themselves}");
    }
}

/// A server of its own, with the records of victims on the first page of the table.
struct Server {
    servers: PostgresServers,
    place: Place,
}

impl Server {
    async fn start() -> Self {
        let mut servers = PostgresServers::new().unwrap();
        servers.start("one", &["shared_buffers=16MB"]).unwrap();
        let place = Place::on(servers.url("one").unwrap());
        let store = place.store().await;
        // Rows are never updated, so that the first page gets no free space, and Postgres puts no
        // other record there.
        for number in 0..VICTIMS {
            granted(&store, &ask(&store, &format!("victim-{number}")).await).await;
        }
        for number in 0..100 {
            granted(&store, &ask(&store, &format!("filler-{number}")).await).await;
        }
        store.close().await;
        Self { servers, place }
    }

    /// Damages the header of the first page behind the back of the server.
    async fn damage(&mut self) {
        let client = self.place.client().await;
        let question = "select pg_relation_filepath('records'), max(ctid) < '(1,0)' from records where key like 'victim-%'";
        let row = client.query_one(question, &[]).await.unwrap();
        assert!(row.get::<_, bool>(1), "the victims are on the first page");
        let path: String = row.get(0);
        self.servers.stop("one").unwrap();
        let path = format!("{}/one/{path}", self.servers.folder());
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0x55; 24], 0).unwrap();
        self.servers.start("one", &["shared_buffers=16MB"]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_page_is_an_error_of_its_keys_and_no_others() {
    let mut server = Server::start().await;
    server.damage().await;
    let store = server.place.store().await;
    for number in 0..VICTIMS {
        let began = Instant::now();
        let damaged = store.claim(&ask(&store, &format!("victim-{number}")).await).await;
        let damaged = damaged.expect_err("its record cannot be read");
        assert!(
            damaged.to_string().starts_with("record not understood: Postgres: invalid page"),
            "{damaged}"
        );
        assert!(!damaged.is_transient());
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    }
    neighbours_go_on(&store).await;
}

/// A claim of a record on an all-visible page reads the index alone: that shows the record, and
/// only after the commit it appears that the record cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_page_that_is_found_after_the_commit_fails_no_neighbour() {
    let mut server = Server::start().await;
    server.place.client().await.batch_execute("vacuum records").await.unwrap();
    server.damage().await;
    let store = server.place.store().await;
    neighbours_go_on(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uncommitted_insert_does_not_affect_other_keys() {
    let server = Server::start().await;
    let (store, other) = (server.place.store().await, server.place.client().await);
    let insert = "begin;
        delete from records where key like 'victim-%';
        commit;
        begin;
        insert into records (id, version, token, fence, attempt, state, realm, principal, key, operation, resource,
            fingerprint, fingerprint_version, owner, lease_until, created_at, retention, after_crash)
        select record_id('tests', '', 'victim-' || n), 1, decode(repeat('00', 16), 'hex'), 1, 1, 'running', 'tests',
            '', 'victim-' || n, 'charge', '', decode(repeat('00', 32), 'hex'), 1, 'x', now() + interval '1 hour',
            now(), 1000000, 'hold'
        from generate_series(0, 5) as n";
    other.batch_execute(insert).await.unwrap();
    let locked = store.claim(&ask(&store, "victim-0").await).await.expect_err("it is not committed");
    assert!(locked.is_transient() && !locked.is_unknown(), "{locked}");
    neighbours_go_on(&store).await;
    other.batch_execute("rollback").await.unwrap();
    granted(&store, &ask(&store, "victim-0").await).await;
}
