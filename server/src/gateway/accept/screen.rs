//! A strict check of HTTP/1 framing, against request smuggling.
//!
//! A request that is framed by both Content-Length and Transfer-Encoding, by two lengths, or with
//! other line ends may be one request for the gateway and two for the next server. The HTTP parser
//! accepts some of these silently. The screen accepts the strict form only, which every server
//! reads in the same way.
//!
//! Nothing is buffered or copied. Where a rule is broken, the byte is replaced by a NUL and the
//! head ends there. The parser then answers 400, after the answers to earlier requests, and closes
//! the connection.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of bytes of a line that are examined: the longest field that frames a body, with
/// room.
const LINE: usize = 128;

/// The state of a connection that both sides of the parser share.
#[derive(Debug, Clone, Default)]
pub(in crate::gateway) struct Tunnel {
    marks: Arc<Marks>,
    /// The connection's place, held until its last byte under any protocol.
    _place: Option<Arc<dyn Any + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Marks {
    /// Set when the connection no longer speaks HTTP.
    open: AtomicBool,
    /// Set while a request over HTTP/1 has begun to arrive and has not ended.
    more: AtomicBool,
}

impl Tunnel {
    /// Holds `place` for as long as the connection exists.
    pub(in crate::gateway) fn keeping(place: impl Any + Send + Sync) -> Self {
        Self { marks: Arc::default(), _place: Some(Arc::new(place)) }
    }

    pub(in crate::gateway) fn open(&self) {
        self.marks.open.store(true, Ordering::Relaxed);
    }

    pub(in crate::gateway) fn is_open(&self) -> bool {
        self.marks.open.load(Ordering::Relaxed)
    }

    /// Returns `true` if more of an HTTP/1 request is expected, also of a refused one.
    pub(in crate::gateway) fn expects_more(&self) -> bool {
        self.marks.more.load(Ordering::Relaxed)
    }
}

/// The state machine over the requests of one connection.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Screen {
    tunnel: Tunnel,
    place: Place,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// The length of the current line so far.
    length: usize,
    /// Set if the last byte was a carriage return.
    returned: bool,
    framing: Framing,
}

/// The part of a request to which the next byte belongs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// The start of the connection, or of the next request.
    #[default]
    Start,
    Head,
    /// The remaining bytes of the body.
    Body(u64),
    ChunkSize,
    /// The remaining bytes of a chunk and its line end.
    Chunk(u64),
    Trailers,
    /// Another protocol, which is not examined: HTTP/2, or an upgrade.
    Other,
    /// The rest is never read.
    Refused,
}

/// The framing of the body as the head declares it.
#[derive(Debug, Clone, Copy, Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
}

/// The last byte breaks a rule.
struct Broken;

impl Screen {
    pub(in crate::gateway) fn new(tunnel: Tunnel) -> Self {
        Self { tunnel, ..Self::default() }
    }

    /// Examines bytes as they arrive, and returns how many of them the parser may read. The last
    /// one of those may have been replaced.
    pub(in crate::gateway) fn look(&mut self, bytes: &mut [u8]) -> usize {
        let read = self.follow(bytes);
        let more = !matches!(self.place, Place::Start | Place::Other);
        self.tunnel.marks.more.store(more, Ordering::Relaxed);
        read
    }

    fn follow(&mut self, bytes: &mut [u8]) -> usize {
        if self.place == Place::Other || self.tunnel.is_open() {
            return bytes.len();
        }
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.place {
                Place::Other => return bytes.len(),
                Place::Refused => return at,
                Place::Body(left) => {
                    let passed = (*left).min((bytes.len() - at) as u64);
                    at += passed as usize;
                    *left -= passed;
                    if *left == 0 {
                        self.place = Place::Start;
                    }
                }
                Place::Chunk(left) if *left > 2 => {
                    let passed = (*left - 2).min((bytes.len() - at) as u64);
                    at += passed as usize;
                    *left -= passed;
                }
                _ => {
                    // Most bytes of a head are within its lines, which are not examined one by one.
                    let text = if self.is_in_line() { text_of(&bytes[at..]) } else { &[] };
                    let (followed, passed) = match text {
                        [] => (self.end(bytes[at]), 1),
                        text => (self.add(text), text.len()),
                    };
                    if followed.is_err() {
                        bytes[at] = 0;
                        self.place = Place::Refused;
                        return at + 1;
                    }
                    at += passed;
                }
            }
        }
        at
    }

    /// Returns `true` if a rule was broken: nothing more is read.
    pub(in crate::gateway) fn has_refused(&self) -> bool {
        self.place == Place::Refused
    }

    /// Returns `true` if the connection speaks HTTP/1, as far as is known.
    pub(in crate::gateway) fn is_http_1(&self) -> bool {
        self.place != Place::Other && !self.tunnel.is_open()
    }

    /// Returns `true` if more of a request is expected, also of a refused one.
    pub(in crate::gateway) fn expects_more(&self) -> bool {
        self.tunnel.expects_more()
    }

    /// Returns `true` if the next bytes belong to a line, or end it.
    fn is_in_line(&self) -> bool {
        !self.returned && !matches!(self.place, Place::Chunk(_))
    }

    /// Adds bytes to the current line.
    fn add(&mut self, text: &[u8]) -> Result<(), Broken> {
        // A line that begins with a space would continue the previous one.
        let is_first = self.length == 0 && self.place != Place::Start;
        ensure(!is_first || !matches!(text, [b' ' | b'\t', ..]))?;
        self.length += text.len();
        let kept = text.len().min(LINE - self.line.len());
        self.line.extend_from_slice(&text[..kept]);
        Ok(())
    }

    /// A byte of a line end: that of a line, or the one after a chunk.
    fn end(&mut self, byte: u8) -> Result<(), Broken> {
        if let Place::Chunk(left) = self.place {
            let expected = if left == 2 { b'\r' } else { b'\n' };
            ensure(byte == expected)?;
            self.place = if left == 2 { Place::Chunk(1) } else { Place::ChunkSize };
            return Ok(());
        }
        // A line ends in CR LF, and neither occurs anywhere else: not alone, and not in reverse
        // order.
        ensure((byte == b'\n') == self.returned)?;
        self.returned = byte == b'\r';
        if self.returned {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let length = std::mem::take(&mut self.length);
        self.end_line(&line, length)?;
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn end_line(&mut self, line: &[u8], length: usize) -> Result<(), Broken> {
        match self.place {
            // Empty lines before a request are skipped.
            Place::Start if line.is_empty() => {}
            Place::Start if line == b"PRI * HTTP/2.0" => self.place = Place::Other,
            Place::Start => {
                self.framing = Framing::default();
                self.place = Place::Head;
            }
            Place::Head if line.is_empty() => {
                self.place = match self.framing {
                    Framing { chunked: true, .. } => Place::ChunkSize,
                    Framing { length: Some(length), .. } if length > 0 => Place::Body(length),
                    Framing { .. } => Place::Start,
                };
            }
            Place::Head => self.field(line, length)?,
            Place::ChunkSize => {
                ensure(length <= LINE)?;
                let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
                self.place = match number(digits, 16)? {
                    0 => Place::Trailers,
                    size => Place::Chunk(size.checked_add(2).ok_or(Broken)?),
                };
            }
            Place::Trailers if line.is_empty() => self.place = Place::Start,
            Place::Trailers => {
                let (name, _) = split(line)?;
                // A trailer cannot repeat the framing of the head.
                ensure(!is(name, b"content-length") && !is(name, b"transfer-encoding"))?;
            }
            Place::Body(_) | Place::Chunk(_) | Place::Other | Place::Refused => {}
        }
        Ok(())
    }

    /// A field of the head: a body is framed by at most one field.
    fn field(&mut self, line: &[u8], length: usize) -> Result<(), Broken> {
        let (name, value) = split(line)?;
        let (is_length, is_encoding) = (is(name, b"content-length"), is(name, b"transfer-encoding"));
        if !is_length && !is_encoding {
            return Ok(());
        }
        ensure(length <= LINE && self.framing.length.is_none() && !self.framing.chunked)?;
        if is_length {
            self.framing.length = Some(number(value, 10)?);
        } else {
            ensure(is(value, b"chunked"))?;
            self.framing.chunked = true;
        }
        Ok(())
    }
}

/// The bytes before the next line end.
fn text_of(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
    &bytes[..end.unwrap_or(bytes.len())]
}

fn ensure(holds: bool) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken) }
}

fn is(text: &[u8], word: &[u8]) -> bool {
    text.eq_ignore_ascii_case(word)
}

/// The name and value of a field. The value of a long line may be cut off.
fn split(line: &[u8]) -> Result<(&[u8], &[u8]), Broken> {
    let colon = line.iter().position(|byte| *byte == b':');
    match colon {
        Some(colon) => {
            let name = &line[..colon];
            ensure(!name.is_empty() && !name.iter().any(|byte| matches!(byte, b' ' | b'\t')))?;
            Ok((name, line[colon + 1..].trim_ascii()))
        }
        // The name of an overlong line may continue beyond the examined part.
        None => ensure(line.len() == LINE).map(|()| (line, [].as_slice())),
    }
}

/// A number of digits only, without sign or spaces.
fn number(digits: &[u8], base: u32) -> Result<u64, Broken> {
    ensure(!digits.is_empty() && digits.iter().all(|digit| (*digit as char).is_digit(base)))?;
    let text = std::str::from_utf8(digits).map_err(|_| Broken)?;
    u64::from_str_radix(text, base).map_err(|_| Broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `true` if every byte passes, however the text is cut in pieces.
    fn passes(text: &str) -> bool {
        let whole = |piece: usize| {
            let mut screen = Screen::default();
            let mut bytes = text.as_bytes().to_vec();
            bytes.chunks_mut(piece).all(|bytes| screen.look(bytes) == bytes.len())
                && screen.place != Place::Refused
        };
        let answers = [whole(1), whole(7), whole(text.len())];
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{text}");
        answers[0]
    }

    fn request(fields: &str, body: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}")
    }

    #[test]
    fn what_has_one_meaning_passes() {
        let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let sized = request("Content-Length: 3\r\n", "a\n\n");
        let none = request("content-length:0\r\n", "");
        let chunked = request(
            "Transfer-Encoding: Chunked\r\n",
            "3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nX-Sum: 7\r\n\r\n",
        );
        let long = request(&format!("X-{}: {}\r\n", "a".repeat(200), "b".repeat(9_000)), "");
        assert!(passes(&[get, &sized, get, &none, &chunked, "\r\n", &long, get].concat()));
    }

    #[test]
    fn what_has_two_meanings_is_refused() {
        for fields in [
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3\r\ncontent-length: 4\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: \r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length : 3\r\n",
            "Content-Length: 99999999999999999999\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding\t: chunked\r\n",
            "X: a\r\n Transfer-Encoding: chunked\r\n",
            "X: a\nTransfer-Encoding: chunked\r\n",
            "X: a\r\r\nY: b\r\n",
            "X: a\rY: b\r\n",
            "no colon\r\n",
            ": nothing\r\n",
        ] {
            assert!(!passes(&request(fields, "abc")), "{fields:?}");
        }
    }

    #[test]
    fn chunks_are_as_long_as_they_say() {
        for body in [
            "3\r\nabcd\r\n",
            "3\nabc\r\n0\r\n\r\n",
            "-1\r\n",
            "\r\n",
            " 3\r\nabc\r\n",
            "3 \r\nabc\r\n",
            "ffffffffffffffff\r\n",
            "0\r\nContent-Length: 3\r\n\r\n",
            "0\r\n\nGET",
        ] {
            assert!(!passes(&request("Transfer-Encoding: chunked\r\n", body)), "{body:?}");
        }
    }

    #[test]
    fn the_byte_that_breaks_a_rule_is_made_to_fail() {
        let mut screen = Screen::default();
        let mut bytes = request("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "rest").into_bytes();
        let end = screen.look(&mut bytes);
        assert_eq!(bytes[..end].last(), Some(&0));
        assert!(end < bytes.len());
        assert_eq!(screen.look(&mut [1, 2, 3]), 0, "nothing more is read");
    }

    #[test]
    fn what_is_not_http_1_is_not_read() {
        assert!(passes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\n\n\0"));
        let tunnel = Tunnel::default();
        let mut screen = Screen::new(tunnel.clone());
        assert_eq!(screen.look(&mut request("Upgrade: websocket\r\n", "").into_bytes()), 48);
        tunnel.open();
        assert_eq!(screen.look(&mut [b'\n', 0, 1]), 3);
    }
}
