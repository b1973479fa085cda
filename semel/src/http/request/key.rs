//! The key of a request, in the syntax of its header.

use std::borrow::Cow;

use ::http::header::{HeaderMap, HeaderName};
use thiserror::Error;

use crate::words::key::KeyError;

/// The fault of a header that should contain a key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// The header appears more than once.
    #[error("the header appears more than once")]
    Repeated,
    /// The value contains a control character, or a byte outside of ASCII.
    #[error("the value has a byte that is not printable ASCII")]
    NotText,
    /// The quotation mark at the beginning has no counterpart.
    #[error("the quoted value does not end")]
    Unfinished,
    /// A backslash precedes something other than a quotation mark or a backslash.
    #[error("a backslash may only stand before a quotation mark or a backslash")]
    Escape,
    /// Something follows the quoted value.
    #[error("something follows the quoted value")]
    Trailing,
    /// An unquoted value contains a quotation mark or a backslash.
    #[error("a value with a quotation mark or a backslash must be quoted")]
    Quote,
    /// A comma: the value is a list, or a proxy has joined two headers.
    #[error("the value is a list; a key with a comma must be quoted")]
    List,
    /// A semicolon: the value has parameters.
    #[error("the value has parameters; a key with a semicolon must be quoted")]
    Parameters,
    /// Only quoted values are allowed here.
    #[error("the value must be quoted")]
    Unquoted,
    /// The text is not a valid key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The value of the only header of this name; `None` if there is none.
pub(in crate::http) fn read<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    strict: bool,
) -> Result<Option<Cow<'a, str>>, KeyFault> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(KeyFault::Repeated);
    }
    parse(value.as_bytes(), strict).map(Some)
}

/// The key in a header's value: a String of RFC 9651, `"abc"`, or the same characters without
/// quotation marks unless `strict`. Both are one key.
///
/// # Errors
/// [`KeyFault`] if the value has another form. The limits of a key are not checked here.
pub fn parse(value: &[u8], strict: bool) -> Result<Cow<'_, str>, KeyFault> {
    match value.trim_ascii() {
        [b'"', quoted @ ..] => unquote(quoted).map(Cow::Owned),
        _ if strict => Err(KeyFault::Unquoted),
        bare => check_bare(bare).map(Cow::Borrowed),
    }
}

/// The text up to the closing quotation mark, which has to be the end.
fn unquote(quoted: &[u8]) -> Result<String, KeyFault> {
    let mut text = String::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    loop {
        let byte = match bytes.next().ok_or(KeyFault::Unfinished)? {
            b'"' => break,
            b'\\' => match bytes.next() {
                Some(escaped @ (b'"' | b'\\')) => escaped,
                _ => return Err(KeyFault::Escape),
            },
            byte @ b' '..=b'~' => byte,
            _ => return Err(KeyFault::NotText),
        };
        text.push(char::from(*byte));
    }
    match bytes.as_slice().trim_ascii_start() {
        [] => Ok(text),
        [b',', ..] => Err(KeyFault::List),
        [b';', ..] => Err(KeyFault::Parameters),
        _ => Err(KeyFault::Trailing),
    }
}

fn check_bare(bare: &[u8]) -> Result<&str, KeyFault> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b',' | b';');
    match bare.iter().find(|byte| !is_plain(byte)) {
        None => std::str::from_utf8(bare).map_err(|_| KeyFault::NotText),
        Some(b'"' | b'\\') => Err(KeyFault::Quote),
        Some(b',') => Err(KeyFault::List),
        Some(b';') => Err(KeyFault::Parameters),
        Some(_) => Err(KeyFault::NotText),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        for (value, key) in [
            (r#"8e03978e-40d5"#, "8e03978e-40d5"),
            (r#""8e03978e-40d5""#, "8e03978e-40d5"),
            ("  \"a\"\t", "a"),
            ("urn:x/y=:+?1", "urn:x/y=:+?1"),
            (r#""a,b;c""#, "a,b;c"),
            (r#""say \"a\\b\"""#, r#"say "a\b""#),
            ("two words", "two words"),
            ("", ""),
            (r#""""#, ""),
        ] {
            assert_eq!(parse(value.as_bytes(), false).as_deref(), Ok(key), "{value}");
        }
    }

    #[test]
    fn what_is_no_single_value_is_refused() {
        for (value, fault) in [
            (r#""a", "b""#, KeyFault::List),
            ("a, b", KeyFault::List),
            (r#""a";v=1"#, KeyFault::Parameters),
            ("a;v=1", KeyFault::Parameters),
            (r#""a"b"#, KeyFault::Trailing),
            (r#""a"#, KeyFault::Unfinished),
            (r#"""#, KeyFault::Unfinished),
            (r#""a\"#, KeyFault::Escape),
            (r#""a\b""#, KeyFault::Escape),
            (r#"a"b""#, KeyFault::Quote),
            ("a\x01", KeyFault::NotText),
            ("cl\u{e9}", KeyFault::NotText),
            ("\"cl\u{e9}\"", KeyFault::NotText),
        ] {
            assert_eq!(parse(value.as_bytes(), false), Err(fault), "{value}");
        }
    }

    #[test]
    fn strict_takes_quoted_values_only() {
        assert_eq!(parse(b"abc", true), Err(KeyFault::Unquoted));
        assert_eq!(parse(b"", true), Err(KeyFault::Unquoted));
        assert_eq!(parse(br#""abc""#, true).as_deref(), Ok("abc"));
    }
}
