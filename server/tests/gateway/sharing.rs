//! Clients that share a gateway or a connection with other clients, and read or send as little as
//! they can.

use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::http2::{Client, Pieces, keyed};
use crate::process::{BOUND, Setup};
use crate::upstream::{Upstream, answer};

const MIB: usize = 1 << 20;

#[tokio::test]
async fn a_replay_that_is_taken_a_little_at_a_time_ends() {
    let body = vec![b'x'; MIB - 100];
    let upstream = Upstream::start(move |_| {
        let body = body.clone();
        async move { answer("200 OK", "", body) }
    })
    .await;
    let setup = Setup::before(upstream.address).with("--body-timeout", "2s").with("--max-memory", "4MiB");
    let gateway = setup.start().await;
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    let client = Client::with_window(&gateway, 16 << 10).await;
    let reply = client.ask(keyed("k", Pieces::whole("{}"))).await;
    assert!(reply.headers().contains_key("idempotency-replayed"));
    let mut body = reply.into_body();
    let mut taken = 0;
    let taking = async {
        while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
            let Ok(frame) = frame else { return true };
            taken += frame.into_data().map_or(0, |data| data.len());
            // The rate is about 11 KiB a second, without a pause of 2 s.
            sleep(Duration::from_millis(1_500)).await;
        }
        false
    };
    assert!(timeout(BOUND, taking).await.expect("it ends"), "it is reset");
    println!("{taken} bytes were taken");
    assert!(taken < MIB / 4);
    gateway.stays_within(before, 4 << 20);
}

#[tokio::test]
async fn a_head_of_many_small_fields_is_refused_over_http_2() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let client = Client::new(&gateway).await;
    for (fields, status) in [(128, 200), (129, 431)] {
        let mut request = keyed("k", Pieces::whole("{}"));
        for number in request.headers().len()..fields {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            request.headers_mut().insert(name, http::HeaderValue::from_static(""));
        }
        let reply = client.ask(request).await;
        assert_eq!(reply.status(), status);
        if status == 431 {
            let told = http_body_util::BodyExt::collect(reply.into_body()).await.unwrap().to_bytes();
            assert!(String::from_utf8_lossy(&told).contains("too_many_fields"));
        }
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn bodies_that_are_not_read_keep_no_other_body_of_their_connection() {
    let upstream = Upstream::counting().await;
    // The upstream accepts connections, and reads nothing.
    let still = TcpSocket::new_v4().unwrap();
    still.set_recv_buffer_size(4_096).unwrap();
    still.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let still = still.listen(64).unwrap();
    let file = format!(
        "upstream = 'http://{}'\n[[route]]\npath = '/still'\nupstream = 'http://{}'\n[[route]]\npath = '/charges'\n",
        upstream.address,
        still.local_addr().unwrap()
    );
    let gateway = Setup::new().with_file(&file).with("--max-memory", "4MiB").start().await;
    assert_eq!(gateway.post("warm", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    let client = Client::new(&gateway).await;
    let large = Bytes::from(vec![b'x'; 16 * MIB]);
    let mut stalled = JoinSet::new();
    for _ in 0..5 {
        let post = http::Request::post("http://shop.example/still");
        stalled.spawn(client.asking(post.body(Pieces::endless(large.clone())).unwrap()));
    }
    let mut lines = Vec::new();
    for _ in 0..5 {
        lines.push(still.accept().await.unwrap());
    }
    // The pause lets the buffers on the way fill. If it were too short, the test would only cover
    // less.
    sleep(Duration::from_secs(1)).await;
    let reply = client.ask(keyed("k", Pieces::whole(vec![b'x'; MIB - 100]))).await;
    assert_eq!(reply.status(), 200);
    gateway.stays_within(before, 4 << 20);
    stalled.shutdown().await;
}
