//! A server process that does not answer, and then does.

use std::time::Duration;

use futures_util::future::join_all;
use semel::store::{Ask, Claim, Void};
use semel::{Failure, Intent, Key, Once, Policy, PostgresStore, RunError, Store};
use testkit::claims::{ask, granted};
use testkit::servers::Servers;
use testkit::stores::postgres::{Backends, Place, signal};
use testkit::until::until;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(1);

/// A store with one connection, whose server process can be stopped.
struct Hung {
    store: PostgresStore,
    place: Place,
    backends: Backends,
    pid: i32,
    _server: Servers,
}

impl Hung {
    async fn start() -> Self {
        Self::start_with(PATIENCE).await
    }

    async fn start_with(patience: Duration) -> Self {
        let server = Servers::postgres(&[]).unwrap();
        let (place, backends) = Backends::on(server.url()).await;
        let options =
            place.options().with_timeout(patience).with_connections(1).with_additional_connections(0);
        // This step is slow on a busy machine, and not a matter of the patience.
        place.options().connect().await.unwrap().migrate().await.unwrap();
        let store = options.connect().await.unwrap();
        until("a first claim is granted", async || store.claim(&ask(&store, "before").await).await.is_ok())
            .await;
        let [pid] = backends.of_committers().await[..] else { panic!("there is one connection") };
        Self { store, place: Place { url: server.url().to_owned(), ..place }, backends, pid, _server: server }
    }

    /// Stops the server process, and sends it a claim. The process could still apply the claim at
    /// any time, so that the result has to be unknown.
    async fn ask_in_vain(&self, asked: &Ask) {
        signal("STOP", self.pid);
        let error = self.store.claim(asked).await.expect_err("the server process is stopped");
        assert!(error.is_unknown(), "{error}");
    }

    /// Resumes the server process, which finds the claim and the order to terminate.
    async fn go_on(&self) {
        signal("CONT", self.pid);
        self.backends.await_end(self.pid).await;
    }

    /// The answer once the store has recovered.
    async fn claim(&self, asked: &Ask) -> Claim {
        let mut answer = None;
        until("the store has found back", async || {
            match self.store.claim(asked).await {
                Ok(claim) => answer = Some(claim),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            answer.is_some()
        })
        .await;
        answer.unwrap()
    }
}

#[tokio::test]
async fn claim_in_the_hands_of_a_hung_server_is_granted_once_it_is_settled() {
    let hung = Hung::start().await;
    let asked = ask(&hung.store, "key").await;
    hung.ask_in_vain(&asked).await;
    hung.go_on().await;
    let claim = hung.claim(&asked).await;
    let Claim::Granted(lease) = claim else { panic!("{claim:?}") };
    let other = hung.place.store().await;
    let record = other.find(&asked.key).await.unwrap().unwrap();
    assert!(record.is_owned_by(asked.token, lease.fence()), "{record:?}");
}

#[tokio::test]
async fn claim_held_by_a_hung_server_takes_nothing_from_a_later_owner() {
    let hung = Hung::start().await;
    let asked = ask(&hung.store, "key").await;
    hung.ask_in_vain(&asked).await;
    let other = hung.place.store().await;
    let lease = granted(&other, &ask(&other, "key").await).await;
    hung.go_on().await;
    let claim = hung.claim(&asked).await;
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    let record = other.find(&asked.key).await.unwrap().unwrap();
    assert!(record.is_owned_by(lease.token(), lease.fence()), "{record:?}");
}

#[tokio::test]
async fn claim_in_the_hands_of_a_hung_server_stays_voided() {
    let hung = Hung::start().await;
    let not_after = hung.store.now().await.unwrap().after(2 * PATIENCE);
    let asked = ask(&hung.store, "key").await.with_not_after(not_after);
    hung.ask_in_vain(&asked).await;
    let other = hung.place.store().await;
    until("the claim is voided", async || {
        other.void(&asked.key, asked.token, not_after).await.unwrap() == Void::Final
    })
    .await;
    hung.go_on().await;
    assert!(matches!(hung.claim(&asked).await, Claim::Late));
    granted(&other, &ask(&other, "key").await).await;
}

/// While the only connection hangs, an operation that waits behind it is withdrawn before the
/// engine would give up on it.
#[tokio::test]
async fn claim_that_was_never_sent_is_known_not_to_be_applied() {
    let hung = Hung::start_with(Duration::from_secs(60)).await;
    let (first, second) = (ask(&hung.store, "first").await, ask(&hung.store, "second").await);
    signal("STOP", hung.pid);
    let waiting = async {
        // On a runtime of one thread, the first operation is in flight after a few turns.
        for _ in 0..50 {
            yield_now().await;
        }
        let began = Instant::now();
        let unsent = hung.store.claim(&second).await.expect_err("it cannot be sent");
        assert!(unsent.is_transient() && !unsent.is_unknown(), "{unsent}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        signal("CONT", hung.pid);
    };
    let (sent, ()) = tokio::join!(hung.store.claim(&first), waiting);
    assert!(matches!(sent.unwrap(), Claim::Granted(_)));
    assert!(hung.store.find(&second.key).await.unwrap().is_none());
}

#[tokio::test]
async fn time_is_told_although_the_process_that_was_asked_for_it_hangs() {
    let server = Servers::postgres(&[]).unwrap();
    let (place, backends) = Backends::on(server.url()).await;
    // The store has only just connected, so it has no time from another answer.
    let store = place.options().with_timeout(PATIENCE).connect().await.unwrap();
    let [pid] = backends.that("true").await[..] else { panic!("there is one connection") };
    signal("STOP", pid);
    until("the time is told", async || {
        timeout(20 * PATIENCE, store.now()).await.expect("it waits for a process that hangs").is_ok()
    })
    .await;
    signal("CONT", pid);
}

/// A caller is refused and leaves one entry in a book at most, whatever the number of callers and
/// the duration.
#[tokio::test]
async fn hung_server_under_load_leaves_no_tasks_behind() {
    let hung = Hung::start().await;
    let patience = Duration::from_millis(50);
    let once = Once::new(hung.store.clone()).with_policy(Policy::hold().with_patience(patience));
    let intent = Intent::of("charge", "", &1).unwrap();
    let run = async |name: String| {
        let key = Key::new("tests", &name).unwrap();
        once.run(&key, &intent, |_| async { Ok::<_, Failure>(1) }).await
    };
    run("first".to_owned()).await.unwrap();
    signal("STOP", hung.pid);
    let mut most_tasks = 0;
    for wave in 0..20 {
        let refused = join_all((0..200).map(|number| run(format!("key-{wave}-{number}")))).await;
        assert!(refused.iter().all(|refused| matches!(refused, Err(RunError::Unavailable(_)))));
        most_tasks = most_tasks.max(Handle::current().metrics().num_alive_tasks());
    }
    // The tasks are those of the store, of plain connections and of the engine: none for each
    // caller.
    assert!(most_tasks <= 50, "{most_tasks} tasks");
    hung.go_on().await;
    until("a new key runs", async || run(format!("{:?}", Instant::now())).await.is_ok()).await;
    until("nothing is left", async || Handle::current().metrics().num_alive_tasks() <= 20).await;
}
