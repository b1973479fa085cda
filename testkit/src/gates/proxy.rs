//! A connection to the server that can be cut.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use semel::store::Token;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::stores::postgres::Place;

/// The point at which a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The request does not reach the server.
    BeforeRequest,
    /// The server has answered, and nothing of the answer comes back.
    BeforeAnswer,
    /// Half of the answer comes back.
    InAnswer,
    /// The request does not reach the server, and the connection stays open. See
    /// [`Proxy::silence`].
    Silence,
    /// The request is held back, and the server does not notice that the other end is gone.
    Unnoticed,
}

/// A Unix socket whose connections lead to the real server, or do not.
pub struct Proxy {
    folder: PathBuf,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    server: Mutex<Config>,
    plan: Mutex<Plan>,
    happened: Notify,
    traffic: Traffic,
}

/// The traffic since the last reading.
#[derive(Default)]
struct Traffic {
    requests: AtomicUsize,
    /// The largest number of bytes that the server has sent between two requests of a connection.
    largest_answer: AtomicUsize,
}

#[derive(Default)]
struct Plan {
    /// The next cut, and the number of requests that pass before it.
    cut: Option<(Cut, usize)>,
    /// Set if no connection to the server is possible after a cut.
    refuses_after_cut: bool,
    refuses: bool,
    /// The number of requests that are still answered.
    silent_after: Option<usize>,
    spoils_begins: bool,
    /// The request that is held back, and its connection to the server, which is still open.
    held_back: Option<(Vec<u8>, Box<dyn Stream>)>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Proxy {
    /// The same place, reached through a proxy.
    pub fn to(place: &Place) -> (Place, Self) {
        let server: Config = place.url.parse().unwrap();
        let folder = std::env::temp_dir().join(format!("semel-proxy-{}", Token::random()));
        fs::create_dir(&folder).unwrap();
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let mut url = format!("host={} user={}", folder.display(), server.get_user().unwrap());
        if let Some(name) = server.get_dbname() {
            url += &format!(" dbname={name}");
        }
        if let Some(name) = server.get_application_name() {
            url += &format!(" application_name={name}");
        }
        if let Some(password) = server.get_password() {
            url += &format!(" password={}", str::from_utf8(password).unwrap());
        }
        let shared = Arc::new(Shared {
            server: Mutex::new(server),
            plan: Mutex::default(),
            happened: Notify::new(),
            traffic: Traffic::default(),
        });
        let accepts = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&accepts).connect(client));
            }
        });
        let proxy = Self { folder, shared, accepting: accepting.abort_handle() };
        (Place { url, schema: place.schema.clone() }, proxy)
    }

    /// Cuts the connection that makes a request after this many other requests, and lets new
    /// connections through.
    pub fn cut(&self, cut: Cut, after: usize) {
        self.shared.plan().cut = Some((cut, after));
    }

    /// Cuts like [`Proxy::cut`], and refuses new connections until healed.
    pub fn cut_for_good(&self, cut: Cut, after: usize) {
        let mut plan = self.shared.plan();
        plan.cut = Some((cut, after));
        plan.refuses_after_cut = true;
    }

    /// Answers no request behind this many other ones, on any connection, until healed.
    pub fn silence(&self, after: usize) {
        self.shared.plan().silent_after = Some(after);
    }

    /// Leads new connections to another server.
    pub fn lead_to(&self, url: &str) {
        *self.shared.server.lock().unwrap() = url.parse().unwrap();
    }

    /// Makes every `begin` fail from now on, as if it had been cancelled.
    pub fn spoil_begins(&self, spoils: bool) {
        self.shared.plan().spoils_begins = spoils;
    }

    /// Lets everything through again, and returns `true` if the cut was made.
    pub fn heal(&self) -> bool {
        let mut plan = self.shared.plan();
        plan.refuses = false;
        plan.refuses_after_cut = false;
        plan.silent_after = None;
        plan.cut.take().is_none()
    }

    /// The number of requests since the last reading, and the size of the largest answer.
    pub fn traffic(&self) -> (usize, usize) {
        let Traffic { requests, largest_answer } = &self.shared.traffic;
        (requests.swap(0, Ordering::SeqCst), largest_answer.swap(0, Ordering::SeqCst))
    }

    /// Waits until the cut is made.
    pub async fn is_cut(&self) {
        let happened = self.shared.happened.notified();
        if self.shared.plan().cut.is_some() {
            happened.await;
        }
    }

    /// Sends the request that was held back, and waits until the server has ended that connection.
    pub async fn deliver(&self) {
        let held_back = self.shared.plan().held_back.take();
        let (request, mut server) = held_back.expect("a request was held back");
        // If the server has closed the connection already, the write fails, which is fine.
        let _ = server.write_all(&request).await;
        let _ = server.shutdown().await;
        let _ = server.read_to_end(&mut Vec::new()).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap()
    }

    /// The treatment of the next request.
    fn next(&self) -> Option<Cut> {
        let mut plan = self.plan();
        match &mut plan.silent_after {
            Some(0) => return Some(Cut::Silence),
            Some(after) => *after -= 1,
            None => {}
        }
        match &mut plan.cut {
            Some((_, after @ 1..)) => {
                *after -= 1;
                None
            }
            other => {
                let (cut, _) = other.take()?;
                plan.refuses = plan.refuses_after_cut;
                Some(cut)
            }
        }
    }

    async fn server(&self) -> Box<dyn Stream> {
        let server = self.server.lock().unwrap().clone();
        let port = server.get_ports().first().copied().unwrap_or(5432);
        match &server.get_hosts()[0] {
            Host::Unix(folder) => {
                Box::new(UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.unwrap())
            }
            Host::Tcp(host) => Box::new(TcpStream::connect((host.as_str(), port)).await.unwrap()),
        }
    }

    async fn connect(self: Arc<Self>, client: UnixStream) {
        if self.plan().refuses {
            return;
        }
        let server = self.server().await;
        // Either end that closes ends the other.
        let _ = self.carry(client, server).await;
    }

    async fn carry(&self, mut client: UnixStream, mut server: Box<dyn Stream>) -> std::io::Result<()> {
        let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut answered = 0;
        loop {
            tokio::select! {
                length = server.read(&mut answer) => match length? {
                    0 => return Ok(()),
                    length => {
                        answered += length;
                        self.traffic.largest_answer.fetch_max(answered, Ordering::SeqCst);
                        client.write_all(&answer[..length]).await?;
                    }
                },
                length = client.read(&mut request) => {
                    let request = match length? {
                        0 => return Ok(()),
                        length => &mut request[..length],
                    };
                    if self.plan().spoils_begins {
                        spoil_begin(request);
                    }
                    answered = 0;
                    self.traffic.requests.fetch_add(1, Ordering::SeqCst);
                    let Some(cut) = self.next() else {
                        server.write_all(request).await?;
                        continue;
                    };
                    match cut {
                        Cut::BeforeRequest => {}
                        Cut::Silence => {
                            self.happened.notify_waiters();
                            // The server learns that the client has gone.
                            while client.read(request).await? > 0 {}
                            return Ok(());
                        }
                        Cut::BeforeAnswer | Cut::InAnswer => {
                            server.write_all(request).await?;
                            let length = server.read(&mut answer).await?;
                            if cut == Cut::InAnswer {
                                client.write_all(&answer[..length / 2]).await?;
                            }
                        }
                        Cut::Unnoticed => self.plan().held_back = Some((request.to_vec(), server)),
                    }
                    self.happened.notify_waiters();
                    return Ok(());
                }
            }
        }
    }
}

/// Makes a `begin` fail by itself, as if it had been cancelled. The messages behind it are passed
/// on.
fn spoil_begin(request: &mut [u8]) {
    let begin = b"Q\0\0\0\x0abegin\0";
    if let Some(at) = request.windows(begin.len()).position(|window| window == begin) {
        request[at + 5..at + 10].copy_from_slice(b"begun");
    }
}
