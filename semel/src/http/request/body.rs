//! Bodies that were read ahead, in whole or in part.

use std::fmt;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::timeout;

use crate::http::request::memory::{Charge, Memory, STEP};
use crate::http::request::pace::{LeastRate, Pace};

/// The time for which a response is gathered before its caller gets it: one of known length, and
/// one of unknown length, which may be an endless stream.
pub(in crate::http) const GATHER_KNOWN: Duration = Duration::from_secs(30);
const GATHER_UNKNOWN: Duration = Duration::from_secs(1);
/// The most bytes of a response of unknown length for which room is reserved before they are read:
/// a read buffer of a connection.
const MOST_AHEAD: usize = 64 << 10;

/// A body of which a part may have been read ahead, with the bytes, errors and trailers of the
/// original body, unchanged.
///
/// The requests to the inner service have such a body, and so do the responses to the caller.
pub struct ReadAhead<B: Body> {
    data: Bytes,
    failed: Option<B::Error>,
    /// Set once the receiver had time to pass on the data, before it gets the error.
    paused: bool,
    trailers: Option<HeaderMap>,
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body> ReadAhead<B> {
    /// A body of which nothing was read.
    pub(in crate::http) fn passed(body: B) -> Self {
        Self { rest: Some(Box::pin(body)), ..Self::whole(Bytes::new()) }
    }

    /// A body that was read completely.
    pub(in crate::http) fn whole(data: Bytes) -> Self {
        Self { data, failed: None, paused: false, trailers: None, rest: None }
    }

    /// A copy of the body, if all of it was read ahead, for an inner service that could not send
    /// the first.
    pub fn try_clone(&self) -> Option<Self> {
        let is_whole = self.rest.is_none() && self.failed.is_none() && self.trailers.is_none();
        is_whole.then(|| Self::whole(self.data.clone()))
    }

    /// The part that was read ahead, with its charge.
    pub(in crate::http) fn read(&self) -> Bytes {
        self.data.clone()
    }

    /// Returns `true` if the body broke off while it was read ahead.
    pub(in crate::http) fn is_broken(&self) -> bool {
        self.failed.is_some()
    }

    /// A body that was read completely, with its trailers.
    pub(in crate::http) fn whole_with(data: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self { trailers, ..Self::whole(data) }
    }
}

impl<B: Body<Data = Bytes>> Body for ReadAhead<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.data)))));
        }
        if self.failed.is_some() && !std::mem::replace(&mut self.paused, true) {
            // A connection sends its data when it has to wait. If it got the error at once, it
            // would send nothing.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(failed) = self.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match &mut self.rest {
            Some(rest) => rest.as_mut().poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let read = self.data.is_empty() && self.failed.is_none() && self.trailers.is_none();
        read && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.data.len() as u64;
        let rest = match &self.rest {
            // A body that is about to fail has no length to promise. A body with trailers must not
            // promise its length: HTTP/1.1 then has no place for trailers.
            _ if self.failed.is_some() || self.trailers.is_some() => SizeHint::new(),
            Some(rest) => rest.size_hint(),
            None => SizeHint::with_exact(0),
        };
        let mut size = SizeHint::new();
        if let Some(upper) = rest.upper() {
            size.set_upper(upper.saturating_add(ahead));
        }
        size.set_lower(rest.lower().saturating_add(ahead));
        size
    }
}

// Errors need not be `Unpin`: they are moved, never pinned.
impl<B: Body> Unpin for ReadAhead<B> {}

impl<B: Body> fmt::Debug for ReadAhead<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAhead")
            .field("bytes", &self.data.len())
            .field("more", &self.rest.is_some())
            .finish()
    }
}

/// The part of a body that has been read. A body in one piece stays that piece; other bodies are
/// copied into pieces of the size in which they are charged, so that their original buffers can be
/// freed.
#[derive(Default)]
struct Gathered {
    first: Bytes,
    more: Vec<Vec<u8>>,
    length: usize,
}

impl Gathered {
    fn length(&self) -> usize {
        self.length
    }

    /// Adds the next bytes; `is_all` means that nothing follows them.
    fn add(&mut self, data: Bytes, is_all: bool) {
        let is_first = self.length == 0;
        self.length += data.len();
        if is_first && is_all {
            self.first = data;
            return;
        }
        let mut data = &data[..];
        while !data.is_empty() {
            let piece = match self.more.last_mut().filter(|piece| piece.len() < STEP) {
                Some(piece) => piece,
                None => {
                    self.more.push(Vec::with_capacity(STEP));
                    continue;
                }
            };
            let (now, later) = data.split_at(data.len().min(STEP - piece.len()));
            piece.extend_from_slice(now);
            data = later;
        }
    }

    /// The number of bytes that are copied when the pieces are joined.
    fn to_join(&self) -> usize {
        if self.more.len() > 1 { self.length } else { 0 }
    }

    fn finish(mut self) -> Bytes {
        match self.more.len() {
            0 => self.first,
            1 => self.more.swap_remove(0).into(),
            _ => self.more.concat().into(),
        }
    }
}

/// The reason why the body of a request was not read.
#[derive(Debug)]
pub(in crate::http) enum Unread {
    TooLarge,
    TooSlow,
    NoRoom,
    Failed,
}

/// The whole body of a request, if it is within the limit, and its trailers. The charge includes a
/// head of this size.
pub(in crate::http) async fn read_request<B>(
    body: B,
    head: usize,
    limit: usize,
    least_rate: Option<LeastRate>,
    memory: Option<&Memory>,
) -> Result<(Bytes, Option<HeaderMap>), Unread>
where
    B: Body<Data = Bytes>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(Unread::TooLarge);
    }
    let mut body = pin!(body);
    let mut gathered = Gathered::default();
    let mut trailers = None;
    let mut pace = Pace::new(least_rate);
    let mut charge = memory.map(Memory::request);
    let mut is_room_for = |bytes| charge.as_mut().is_none_or(|charge| charge.try_for(bytes));
    if !is_room_for(head) {
        return Err(Unread::NoRoom);
    }
    loop {
        let next = poll_fn(|context| match body.as_mut().poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => pace.poll_slow(context).map(|()| Err(Unread::TooSlow)),
        });
        let Some(frame) = next.await? else { break };
        match frame.map_err(|_| Unread::Failed)?.into_data() {
            Ok(data) if gathered.length() + data.len() > limit => return Err(Unread::TooLarge),
            Ok(data) => {
                if !is_room_for(head + gathered.length() + data.len()) {
                    return Err(Unread::NoRoom);
                }
                pace.came(data.len());
                gathered.add(data, body.is_end_stream());
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    let (whole, joined) = (head + gathered.length(), gathered.to_join());
    if charge.as_mut().is_some_and(|charge| !charge.try_for_joining(whole, joined)) {
        return Err(Unread::NoRoom);
    }
    let bytes = gathered.finish();
    if let Some(charge) = &mut charge {
        charge.keep(whole);
    }
    Ok((held(bytes, charge), trailers))
}

/// The bytes with their charge, if they have one.
fn held(bytes: Bytes, charge: Option<Charge>) -> Bytes {
    match charge {
        Some(charge) => charge.hold(bytes),
        None => bytes,
    }
}

/// The end of gathering a body.
enum Gathering<E> {
    Ended,
    Failed(E),
    /// The body is over the limit, or has taken too long.
    Unfinished,
}

/// Reads a response ahead: to its end, up to the limit, or until the given or the usual time is
/// over. The bytes are returned if they are all of it: without an error at the end, and without
/// trailers, which no record holds.
pub(in crate::http) async fn read_response<B>(
    body: B,
    limit: usize,
    longest: Option<Duration>,
    memory: Option<&Memory>,
) -> (ReadAhead<B>, Option<Bytes>)
where
    B: Body<Data = Bytes>,
{
    if body.size_hint().lower() > limit as u64 {
        return (ReadAhead::passed(body), None);
    }
    let usual = if body.size_hint().exact().is_some() { GATHER_KNOWN } else { GATHER_UNKNOWN };
    let patience = longest.unwrap_or(usual);
    let mut body = Box::pin(body);
    let mut gathered = Gathered::default();
    let mut trailers = None;
    let mut charge = memory.map(Memory::reply);
    let gathering = async {
        let mut next = STEP;
        loop {
            if gathered.length() > limit {
                return Gathering::Unfinished;
            }
            // A response that waits holds what is charged, and what its connection has read. A
            // reader that gives up here has lost nothing.
            if let Some(charge) = &mut charge {
                let left = body.size_hint().upper().and_then(|left| usize::try_from(left).ok());
                charge.wait_for(gathered.length() + left.unwrap_or(next).min(next)).await;
            }
            match poll_fn(|context| body.as_mut().poll_frame(context)).await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        next = data.len().clamp(STEP, MOST_AHEAD);
                        gathered.add(data, body.is_end_stream());
                    }
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
                Some(Err(error)) => return Gathering::Failed(error),
                None => return Gathering::Ended,
            }
        }
    };
    let end = timeout(patience, pin!(gathering)).await;
    let (whole, joined) = (gathered.length(), gathered.to_join());
    // This does not wait, so when there is no room, there is one such body for each thread.
    let _found = charge.as_mut().is_some_and(|charge| charge.try_for_joining(whole, joined));
    let recorded = gathered.finish();
    if let Some(charge) = &mut charge {
        charge.keep(whole);
    }
    // The store may keep the recorded bytes for good, so they have no charge themselves.
    let data = held(recorded.clone(), charge);
    match end.unwrap_or(Gathering::Unfinished) {
        Gathering::Failed(error) => (ReadAhead { failed: Some(error), ..ReadAhead::whole(data) }, None),
        Gathering::Ended => {
            let whole = trailers.is_none().then_some(recorded);
            (ReadAhead::whole_with(data, trailers), whole)
        }
        Gathering::Unfinished => {
            (ReadAhead { rest: Some(body), ..ReadAhead::whole_with(data, trailers) }, None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A body of given frames; an error is a word.
    struct Frames(VecDeque<Result<Frame<Bytes>, &'static str>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn data(bytes: &'static [u8]) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from_static(bytes)))
    }

    fn trailers() -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())])))
    }

    /// Everything that a body yields: its bytes, the presence of trailers, and its error.
    async fn all(mut body: ReadAhead<Frames>) -> (Vec<u8>, bool, Option<&'static str>) {
        let (mut bytes, mut trailed) = (Vec::new(), false);
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => bytes.extend_from_slice(&data),
                Ok(Err(_)) => trailed = true,
                Err(error) => return (bytes, trailed, Some(error)),
            }
        }
        (bytes, trailed, None)
    }

    #[tokio::test]
    async fn a_response_reaches_its_caller_whole_whatever_it_is() {
        let cases = [
            (vec![], b"".as_slice(), false, None, true),
            (vec![data(b"ab")], b"ab", false, None, true),
            (vec![data(b"ab"), data(b""), data(b"c")], b"abc", false, None, true),
            (vec![data(b"abcd"), data(b"e")], b"abcde", false, None, false),
            (vec![data(b"abcde"), data(b"f"), trailers()], b"abcdef", true, None, false),
            (vec![data(b"ab"), trailers()], b"ab", true, None, false),
            (vec![data(b"ab"), Err("cut")], b"ab", false, Some("cut"), false),
        ];
        for (frames, bytes, trailed, failed, recorded) in cases {
            let (body, whole) = read_response(Frames(frames.into()), 4, None, None).await;
            assert_eq!(whole.is_some(), recorded, "{bytes:?}");
            assert!(whole.is_none_or(|whole| whole == bytes));
            assert_eq!(all(body).await, (bytes.to_vec(), trailed, failed));
        }
    }

    #[tokio::test]
    async fn a_request_is_read_up_to_its_limit() {
        let (bytes, trailers) =
            read_request(Frames([data(b"ab"), data(b"cd"), trailers()].into()), 0, 4, None, None)
                .await
                .unwrap();
        assert_eq!((&*bytes, trailers.is_some()), (b"abcd".as_slice(), true));
        let large = Frames([data(b"abc"), data(b"de")].into());
        assert!(matches!(read_request(large, 0, 4, None, None).await, Err(Unread::TooLarge)));
        let cut = Frames([data(b"a"), Err("cut")].into());
        assert!(matches!(read_request(cut, 0, 4, None, None).await, Err(Unread::Failed)));
    }

    #[tokio::test]
    async fn a_request_is_charged_with_its_head_and_twice_while_it_is_joined() {
        let memory = Memory::new(16 * STEP);
        let step = || data(&[7; STEP]);
        let read = async |head: usize, frames: Vec<_>| {
            let read = read_request(Frames(frames.into()), head, usize::MAX, None, Some(&memory)).await;
            read.map(|(bytes, _)| bytes).map_err(|unread| format!("{unread:?}"))
        };
        let empty = read(1, vec![]).await.unwrap();
        assert_eq!(memory.requests_in_use(), STEP, "a head alone");
        let joined = read(1, vec![step(), step(), step()]).await.unwrap();
        assert_eq!((joined.len(), memory.requests_in_use()), (3 * STEP, 5 * STEP));
        assert_eq!(read(0, vec![step(), step()]).await, Err("NoRoom".to_owned()), "there is room once");
        assert_eq!(read(3 * STEP + 1, vec![]).await, Err("NoRoom".to_owned()));
        drop((empty, joined));
        assert_eq!(memory.requests_in_use(), 0);
        let large = read(0, vec![step(), step(), step(), step(), step(), step()]).await.unwrap();
        assert_eq!((large.len(), memory.requests_in_use()), (6 * STEP, 6 * STEP), "when there is no other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_without_room_is_not_read() {
        let memory = Memory::new(4 * STEP);
        let (mut full, mut over) = (memory.reply(), memory.reply());
        assert!(full.try_for(2 * STEP));
        over.wait_for(1).await;
        let mut frames = Frames([data(b"ab")].into());
        let (body, whole) = read_response(&mut frames, 4, None, Some(&memory)).await;
        assert!(whole.is_none(), "it was given up");
        drop(body);
        assert_eq!(frames.0.len(), 1);
        drop(full);
        let (_, whole) = read_response(&mut frames, 4, None, Some(&memory)).await;
        assert_eq!(whole.as_deref(), Some(b"ab".as_slice()));
        drop(over);
        assert_eq!(memory.responses_in_use(), 0);
    }

    #[test]
    fn the_size_is_known_when_it_is() {
        let whole: ReadAhead<Frames> = ReadAhead::whole(Bytes::from_static(b"abc"));
        assert_eq!(whole.size_hint().exact(), Some(3));
        assert!(!whole.is_end_stream());
        let none: ReadAhead<Frames> = ReadAhead::whole(Bytes::new());
        assert!(none.is_end_stream());
        let streamed = ReadAhead::passed(Frames(VecDeque::new()));
        assert_eq!(streamed.size_hint().exact(), None);
    }
}
